"""Each rank's share of a dataset's batches.

Ranks make the same number of steps, whatever they hold: before each step they tell one
another whether they have a batch, and one that has none takes part with an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import numpy as np

import collectives
from strategy import contexts, nest
from strategy.datasets import Dataset
from strategy.values import PerReplica, plain

END = object()


class DistributedDataset:
    """Steps of this rank's replica; iterating is collective, every time from the start.

    The elements are nests whose leaves are PerReplica, or bare where there is one
    replica in all.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        comm: collectives.Communicator,
        part: Callable[[int], slice] | None = None,
    ) -> None:
        """Use `dataset`; `part` gives this rank's rows of a batch, None all of them."""
        self._dataset = dataset
        self._comm = comm
        self._part = part
        self._iterations = 0

    def __iter__(self) -> Iterator[Any]:
        number, self._iterations = self._iterations, self._iterations + 1
        # Counted here, where all ranks count alike, and not in the dataset, which one
        # rank may have looked into by itself.
        if isinstance(self._dataset, Dataset):
            return self._steps(self._dataset.iteration(number))
        return self._steps(iter(self._dataset))

    def __len__(self) -> int:
        """Return the number of steps, where every rank sees the same batches."""
        if self._part is None or not isinstance(self._dataset, Sized):
            raise TypeError("the number of steps is not known before the last one")
        return len(self._dataset)

    def _steps(self, source: Iterator[Any]) -> Iterator[Any]:
        empty = None
        while True:
            _check_context()
            batch = next(source, END)
            if batch is not END:
                batch = nest.map_structure(plain, batch)
                batch = batch if self._part is None else cut(batch, self._part)
                empty = nest.map_structure(_emptied, batch) if empty is None else empty
            if self._comm.size == 1:
                if batch is END:
                    return
                yield batch
                continue
            some, empty = self._agree(batch is not END, empty)
            if not some:
                return
            batch = empty if batch is END else batch
            yield nest.map_structure(lambda array: PerReplica([array]), batch)

    def _agree(self, have: bool, empty: Any) -> tuple[bool, Any]:
        """Return whether any rank has a batch, and what an empty one looks like."""
        mine = np.array([have, empty is None], np.int64)
        having, asking = self._comm.all_reduce(mine)
        if having and asking:  # a rank that never had a batch cannot make one up
            known = self._comm.all_gather_object(empty)
            empty = next(example for example in known if example is not None)
        return bool(having), empty


def rows_of_piece(piece: int, pieces: int) -> Callable[[int], slice]:
    """Return which of b rows belong to one of `pieces` pieces, as a function of b.

    Every piece has ceil(b / pieces) rows; the last ones may be short or empty.
    """

    def rows(of: int) -> slice:
        size = -(-of // pieces)
        return slice(min(piece * size, of), min((piece + 1) * size, of))

    return rows


def cut(batch: Any, part: Callable[[int], slice]) -> Any:
    """Return some rows of every array in a batch.

    Raises `ValueError` unless all arrays have the same number of rows.
    """
    shapes = [array.shape for array in nest.flatten(batch)]
    if () in shapes or len({shape[0] for shape in shapes}) != 1:
        raise ValueError(
            f"a step of the dataset has arrays of shapes {shapes}; wanted batches "
            "with one number of rows: call batch() on the dataset"
        )
    rows = part(shapes[0][0])
    return nest.map_structure(lambda array: array[rows], batch)


def _emptied(array: Any) -> Any:
    """Return an array of no rows, or a zero in the place of a number."""
    return array[:0].copy() if array.ndim else np.zeros_like(array)


def _check_context() -> None:
    if contexts.has_strategy() and not contexts.in_cross_replica_context():
        raise ValueError(
            "the next step of a distributed dataset inside run(); wanted it outside, "
            "since it holds the batches of all local replicas"
        )
