"""Where elements come from: arrays in memory, ranges, Python generators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from strategy import nest
from strategy.data.streams import Stream

INFINITE, UNKNOWN = -1, -2  # cardinalities


class Source(Protocol):
    """The first link of a pipeline."""

    def open(self, epoch: int) -> Stream:
        """Return the elements, from the first one on."""

    def cardinality(self) -> int:
        """Return the number of elements, or INFINITE, or UNKNOWN."""

    def describe(self) -> str:
        """Return what two ranks must have in common."""


@dataclass(frozen=True)
class Slices:
    """The rows of arrays in memory; the token of a row is its number."""

    arrays: Any
    """A nest of arrays with one number of rows."""

    @classmethod
    def of(cls, tensors: Any) -> Slices:
        """Make arrays of all leaves; a list is an array, not a nest.

        Raises `ValueError` unless all have the same number of rows.
        """
        arrays = _arrays(tensors)
        shapes = [array.shape for array in nest.flatten(arrays)]
        if not shapes or () in shapes or len({shape[0] for shape in shapes}) != 1:
            raise ValueError(f"arrays have shapes {shapes}; wanted one number of rows")
        return cls(arrays)

    def open(self, epoch: int) -> Stream:
        """Return the rows in order; what they give is a copy."""
        leaves = nest.flatten(self.arrays)

        def row(number: int) -> Any:
            return nest.unflatten(self.arrays, [leaf[number].copy() for leaf in leaves])

        def rows(numbers: list[int]) -> Any:
            # One index array for all leaves; of a list each leaf would make its own.
            index = np.array(numbers, np.intp)
            return nest.map_structure(lambda array: array[index], self.arrays)

        return Stream(iter(range(self.cardinality())), row, rows)

    def cardinality(self) -> int:
        """Return the number of rows."""
        return len(nest.flatten(self.arrays)[0])

    def describe(self) -> str:
        """Return the arrays' shapes and dtypes."""
        leaves = nest.flatten(self.arrays)
        return f"slices of {[(leaf.shape, str(leaf.dtype)) for leaf in leaves]}"


@dataclass(frozen=True)
class Numbers:
    """The int64 numbers of a range, each its own token."""

    numbers: range

    def open(self, epoch: int) -> Stream:
        """Return the numbers in order."""
        return Stream(
            iter(self.numbers), np.int64, lambda chosen: np.array(chosen, np.int64)
        )

    def cardinality(self) -> int:
        """Return how many there are."""
        return len(self.numbers)

    def describe(self) -> str:
        """Return the range."""
        return str(self.numbers)


@dataclass(frozen=True)
class Generated:
    """Whatever a Python function or iterable gives, asked anew for every epoch."""

    make: Callable[[], Iterable[Any]]
    length: int = UNKNOWN

    def open(self, epoch: int) -> Stream:
        """Return what a new call of the function gives."""
        return Stream(map(_element, self.make()))

    def cardinality(self) -> int:
        """Return the number of elements, where somebody knew it."""
        return self.length

    def describe(self) -> str:
        """Return the length where it is known: functions cannot be compared."""
        return "generated" if self.length < 0 else f"generated({self.length})"


def given_once(iterator: Iterator[Any]) -> Callable[[], Iterator[Any]]:
    """Return a function that gives the iterator; `ValueError` the second time."""
    left = [iterator]

    def make() -> Iterator[Any]:
        if not left:
            raise ValueError(
                "an iterator is asked for its elements a second time; wanted a list, "
                "or Dataset.from_generator with the function that makes the iterator"
            )
        return left.pop()

    return make


def _arrays(tensors: Any) -> Any:
    """Return arrays in the place of all leaves of nested tuples and dicts."""
    if isinstance(tensors, dict):
        return {key: _arrays(value) for key, value in tensors.items()}
    if isinstance(tensors, tuple):
        items = [_arrays(value) for value in tensors]
        return type(tensors)(*items) if hasattr(tensors, "_fields") else tuple(items)
    return tensors if hasattr(tensors, "__array_function__") else np.asarray(tensors)


def _element(value: Any) -> Any:
    """Return an element as a generator gave it; a list of numbers is an array.

    A list of arrays stays a nest: that is how a torch DataLoader gives its batches.
    """
    if isinstance(value, list) and not any(map(_is_part, value)):
        return np.asarray(value)
    return value


def _is_part(value: Any) -> bool:
    return hasattr(value, "__array__") or isinstance(value, (dict, tuple))
