"""Rows of arrays, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from strategy import nest


@dataclass
class Dataset:
    """Rows of arrays in memory, one by one or in batches.

    The methods return changed copies. Iterating gives nests like `arrays`; an iteration
    is one epoch, or as many as `repeat` says.
    """

    arrays: Any
    """A nest of arrays that have the same number of rows."""
    seed: int | None = None
    batch_rows: int | None = None
    drop_remainder: bool = False
    epochs: int | None = 1
    _iterations: int = field(default=0, init=False, repr=False)

    @classmethod
    def from_tensor_slices(cls, arrays: Any) -> Dataset:
        """Return the rows of the arrays in a nest, in order.

        Raises `ValueError` unless all have the same number of rows.
        """
        arrays = nest.map_structure(np.asarray, arrays)
        shapes = [array.shape for array in nest.flatten(arrays)]
        if () in shapes or len({shape[0] for shape in shapes}) != 1:
            raise ValueError(f"arrays have shapes {shapes}; wanted one number of rows")
        return cls(arrays)

    def shuffle(self, *, seed: int) -> Dataset:
        """Draw all rows in an order that `seed` fixes, another one in each epoch.

        The ranks of a job must give the same seed: each takes its part of a batch, so
        they need the same batches.
        """
        if self.batch_rows is not None:
            raise ValueError(
                "shuffle after batch; wanted it before, since it moves rows"
            )
        return replace(self, seed=seed)

    def batch(self, rows: int, drop_remainder: bool = False) -> Dataset:
        """Join `rows` rows into a batch; the last one of an epoch may be shorter.

        `rows` is the global number: that of all replicas together.
        """
        if rows < 1 or self.batch_rows is not None:
            raise ValueError(
                f"batch of {rows} row(s), after one of {self.batch_rows}; wanted a "
                "single batch of 1 row or more"
            )
        return replace(self, batch_rows=rows, drop_remainder=drop_remainder)

    def repeat(self, epochs: int | None = None) -> Dataset:
        """Go through all rows `epochs` times in one iteration; None means for ever."""
        return replace(self, epochs=epochs)

    def iteration(self, number: int) -> Iterator[Any]:
        """Return iteration `number`: the same rows in the same order whenever asked."""
        epochs = count() if self.epochs is None else range(self.epochs)
        first = number * len(epochs) if isinstance(epochs, range) else 0
        for epoch in epochs:
            yield from self._epoch(first + epoch)

    def __iter__(self) -> Iterator[Any]:
        self._iterations += 1
        return self.iteration(self._iterations - 1)

    def __len__(self) -> int:
        """Return the number of steps in an iteration; `TypeError` if it has no end."""
        if self.epochs is None:
            raise TypeError("a dataset that repeats for ever has no length")
        return self.epochs * len(self._starts())

    def _epoch(self, number: int) -> Iterator[Any]:
        rows = len(nest.flatten(self.arrays)[0])
        order: Any = range(rows)
        if self.seed is not None:
            order = np.random.default_rng([self.seed, number]).permutation(rows)
        for start in self._starts():
            chosen = (
                order[start]
                if self.batch_rows is None
                else order[start : start + self.batch_rows]
            )
            yield nest.map_structure(lambda array, at=chosen: array[at], self.arrays)

    def _starts(self) -> range:
        """Return the first row of every batch in an epoch."""
        rows = len(nest.flatten(self.arrays)[0])
        step = self.batch_rows or 1
        return range(0, rows - step + 1 if self.drop_remainder else rows, step)
