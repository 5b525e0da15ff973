"""Some rows of an array: what a gradient of a look-up is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from strategy.placing import Place, cast, moved, on, place_of, seen, together


class IndexedSlices:
    """Rows `values[i]` at row numbers `indices[i]` of an array full of zeros.

    A row number may come several times; its rows count together. `dense_shape` is the
    shape of the whole array, where that is known. Row numbers are where the rows are.
    """

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values = _array(values)
        self.indices = moved(_array(indices), place_of(self.values))
        self.dense_shape = None if dense_shape is None else np.asarray(dense_shape)
        if not self.indices.size:
            self.indices = cast(self.indices, np.dtype(np.int64))  # [] has float64
        if self.indices.dtype.kind not in "iu":
            raise TypeError(f"indices are {self.indices.dtype}; wanted integers")
        if self.indices.ndim != 1 or self.values.shape[:1] != self.indices.shape:
            raise ValueError(
                f"values have shape {self.values.shape}, indices "
                f"{self.indices.shape}; wanted one row of values for each index"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    def moved(self, place: Place) -> IndexedSlices:
        """Return the same rows at a place."""
        values, indices = moved(self.values, place), moved(self.indices, place)
        return IndexedSlices(values, indices, self.dense_shape)

    def copy(self) -> IndexedSlices:
        """Return slices of the same rows in memory of their own."""
        with on(place_of(self)):
            values, indices = self.values.copy(), self.indices.copy()
        return IndexedSlices(values, indices, self.dense_shape)

    def divided_by(self, count: int) -> IndexedSlices:
        """Return the same rows, with their values divided."""
        with on(place_of(self)):
            return IndexedSlices(self.values / count, self.indices, self.dense_shape)

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(values={self.values!r}, indices={self.indices!r}, "
            f"dense_shape={self.dense_shape!r})"
        )


def joined(parts: Sequence[IndexedSlices]) -> IndexedSlices:
    """Return the sum of several: their rows one after another, none merged."""
    if len(parts) == 1:
        return parts[0]
    with on(place_of(parts[0])):
        return IndexedSlices(
            np.concatenate(together([part.values for part in parts])),
            np.concatenate(together([part.indices for part in parts])),
            parts[0].dense_shape,
        )


def _array(value: Any) -> Any:
    """Return an array where it is, of the host for what is none."""
    value = seen(value)
    return value if place_of(value) is not None else np.asarray(value)
