"""Changes of some rows of an array, given as IndexedSlices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from strategy.indexed_slices import IndexedSlices
from strategy.placing import moved, on_host, place_of

Scatter = Callable[[Any, IndexedSlices], Any]


def _at(ufunc: np.ufunc) -> Scatter:
    """Return the change that applies `ufunc` row by row, also to a row given twice."""
    return _changing(lambda new, rows, values: ufunc.at(new, rows, values))


def _changing(change: Callable[[Any, Any, Any], None]) -> Scatter:
    """Return the change of a copy of an array by `change(array, rows, values)`."""

    def scatter(old: Any, delta: IndexedSlices) -> Any:
        new, place = old.copy(), place_of(old)
        if place is None:
            change(new, delta.indices, delta.values)
            return new
        # On a GPU a row that comes twice would be changed in an order that may differ
        # from one GPU to the next: the rows in question are changed on the host.
        given = delta.moved(None)
        rows, numbers = np.unique(given.indices, return_inverse=True)
        there = moved(rows, place)
        some = on_host(old[there])
        change(some, numbers, given.values)
        new[there] = moved(some, place)
        return new

    return scatter


def _set(new: Any, rows: Any, values: Any) -> None:
    new[rows] = values


SCATTERS: dict[str, Scatter] = {
    "scatter_add": _at(np.add),
    "scatter_sub": _at(np.subtract),
    "scatter_mul": _at(np.multiply),
    "scatter_div": _at(np.divide),
    "scatter_min": _at(np.minimum),
    "scatter_max": _at(np.maximum),
    "scatter_update": _changing(_set),
}

# Sums of several replicas' rows mean nothing to these.
NEVER_REDUCED = ("scatter_min", "scatter_max", "scatter_update")


class Scattered:
    """The methods that change some rows of an array, given as IndexedSlices.

    Row numbers may come several times. Raises `NotImplementedError` where the array is
    one that replicas combine when it is read, or combine in a way that has no meaning
    for the change.
    """

    def scatter_add(self, delta: IndexedSlices) -> Any:
        """Add rows to some rows of the value; as `assign`."""
        return self._scatter("scatter_add", delta)

    def scatter_sub(self, delta: IndexedSlices) -> Any:
        """Subtract rows from some rows of the value; as `assign`."""
        return self._scatter("scatter_sub", delta)

    def scatter_mul(self, delta: IndexedSlices) -> Any:
        """Multiply some rows of the value by rows; as `assign`."""
        return self._scatter("scatter_mul", delta)

    def scatter_div(self, delta: IndexedSlices) -> Any:
        """Divide some rows of the value by rows; as `assign`."""
        return self._scatter("scatter_div", delta)

    def scatter_min(self, delta: IndexedSlices) -> Any:
        """Keep the smaller of some rows of the value and rows; as `assign`."""
        return self._scatter("scatter_min", delta)

    def scatter_max(self, delta: IndexedSlices) -> Any:
        """Keep the larger of some rows of the value and rows; as `assign`."""
        return self._scatter("scatter_max", delta)

    def scatter_update(self, delta: IndexedSlices) -> Any:
        """Put rows in the place of some rows of the value; as `assign`."""
        return self._scatter("scatter_update", delta)

    def _scatter(self, name: str, delta: IndexedSlices) -> Any:
        raise NotImplementedError
