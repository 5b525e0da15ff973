"""Changes of some rows of an array, given as IndexedSlices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from strategy.indexed_slices import IndexedSlices

Scatter = Callable[[Any, IndexedSlices], Any]


def _at(ufunc: np.ufunc) -> Scatter:
    """Return the change that applies `ufunc` row by row, also to a row given twice."""

    def change(old: Any, delta: IndexedSlices) -> Any:
        new = old.copy()
        ufunc.at(new, delta.indices, delta.values)
        return new

    return change


def _update(old: Any, delta: IndexedSlices) -> Any:
    new = old.copy()
    new[delta.indices] = delta.values
    return new


SCATTERS: dict[str, Scatter] = {
    "scatter_add": _at(np.add),
    "scatter_sub": _at(np.subtract),
    "scatter_mul": _at(np.multiply),
    "scatter_div": _at(np.divide),
    "scatter_min": _at(np.minimum),
    "scatter_max": _at(np.maximum),
    "scatter_update": _update,
}

# Sums of several replicas' rows mean nothing to these.
NEVER_REDUCED = ("scatter_min", "scatter_max", "scatter_update")
