"""The steps of a dataset for the replicas of this process.

A step has a piece for every local replica. All processes make the same number of steps,
whatever they hold: before each one they tell one another whether they have a piece, and
replicas without one take part with an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

import collectives
from strategy import contexts, nest
from strategy.data.streams import as_array
from strategy.errors import InputError, OutOfRangeError
from strategy.input_context import InputContext
from strategy.placing import Place, moved
from strategy.values import PerReplica

T = TypeVar("T")


class DistributedDataset:
    """Steps of this process's replicas; iterating starts over, and may be collective.

    The elements are nests whose leaves are PerReplica, or bare where there is one
    replica in all. The functions in input_pipelines.py make them.
    """

    def __init__(
        self,
        columns: list[Callable[[int], Iterator[Any]]],
        context: InputContext,
        comm: collectives.Communicator | None,
        pads: bool,
        length: int | None,
        spec: Callable[[], Any],
        places: Sequence[Place] = (),
    ) -> None:
        """Take pieces from `columns`: one for all local replicas in turn, or one each.

        Args:
            columns: iteration number -> pieces.
            context: the place of this process among all.
            comm: the processes, None where there is one.
            pads: whether replicas without a piece get an empty one until all are done.
            length: the number of steps, where it is known.
            spec: what gives `element_spec`.
            places: where each local replica gets its pieces; nowhere: as they are.
        """
        self._columns, self._context, self._length = columns, context, length
        self._comm = comm if pads and comm is not None and comm.size > 1 else None
        self._pads, self._spec = pads, spec
        on_gpus = any(place is not None for place in places)
        self._places = tuple(places) if on_gpus else ()
        self._iterations = 0

    @property
    def element_spec(self) -> Any:
        """A nest of PerReplicas of TensorSpecs, or of bare ones."""
        return self._spec()

    def reduce(self, initial_state: T, reduce_func: Callable[[T, Any], T]) -> T:
        """Return what `reduce_func(state, step)` makes of all steps, one by one."""
        state = initial_state
        for step in self:
            state = reduce_func(state, step)
        return state

    def __iter__(self) -> DistributedIterator:
        # Counted here, where all ranks count alike, and not in the dataset, which one
        # rank may have looked into by itself.
        number, self._iterations = self._iterations, self._iterations + 1
        return self.iteration(number)

    def iteration(self, number: int) -> DistributedIterator:
        """Return the steps of iteration `number`, the same whenever asked.

        For a program that goes on from a checkpoint: iterating would begin with the
        random orders of iteration 0.
        """
        return DistributedIterator(self._steps(number), self)

    def __len__(self) -> int:
        """Return the number of steps; `TypeError` where only reading can tell."""
        if self._length is None:
            raise TypeError("the number of steps is not known before the last one")
        return self._length

    def _steps(self, number: int) -> Iterator[Any]:
        local = self._context.num_replicas_in_sync // self._context.num_input_pipelines
        columns = [_opened(column, number) for column in self._columns]
        empty = None
        while True:
            failure, pieces = None, []
            try:
                for replica in range(local):
                    piece = next(columns[replica % len(columns)], None)
                    if piece is not None:
                        piece = nest.map_structure(as_array, piece)
                    pieces.append(piece)
            except Exception as error:
                if self._comm is None:
                    raise
                failure = error
            have = [piece for piece in pieces if piece is not None]
            if have and empty is None:
                empty = nest.map_structure(_emptied, have[0])
            if self._comm is not None:
                some, empty = _agree(self._comm, bool(have), empty, failure)
            else:
                some = bool(have) if self._pads else len(have) == local
            if not some:
                return
            step = [empty if piece is None else piece for piece in pieces]
            if self._places:
                step = list(map(_fetched, step, self._places))
            yield step[0] if self._bare else _per_replica(step)

    @property
    def _bare(self) -> bool:
        return self._context.num_replicas_in_sync == 1


class DistributedIterator:
    """The steps of one iteration; taking the next one may be collective."""

    def __init__(self, steps: Iterator[Any], dataset: DistributedDataset) -> None:
        self._steps, self._dataset = steps, dataset

    @property
    def element_spec(self) -> Any:
        """What the steps look like."""
        return self._dataset.element_spec

    def get_next(self) -> Any:
        """Return the next step; `OutOfRangeError` after the last one."""
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError("the dataset has no more steps") from None

    def get_next_as_optional(self) -> Optional:
        """Return the next step, or something that says that there is none."""
        try:
            return Optional([next(self)])
        except StopIteration:
            return Optional([])

    def __iter__(self) -> DistributedIterator:
        return self

    def __next__(self) -> Any:
        if contexts.has_strategy() and not contexts.in_cross_replica_context():
            raise ValueError(
                "the next step of a distributed dataset inside run(); wanted it "
                "outside, since it holds the batches of all local replicas"
            )
        return next(self._steps)


class Optional:
    """A step, or none."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def has_value(self) -> bool:
        """Return whether there is a step."""
        return bool(self._values)

    def get_value(self) -> Any:
        """Return the step; `ValueError` where there is none."""
        if not self._values:
            raise ValueError("the optional has no value: the dataset has ended")
        return self._values[0]


def _agree(
    comm: collectives.Communicator, have: bool, empty: Any, failure: Exception | None
) -> tuple[bool, Any]:
    """Return whether any process has a piece, and what an empty one looks like.

    Raises, on all of them, where making a piece failed on one: see `raise_on_all`.
    """
    mine = np.array([have, empty is None, failure is not None], np.int64)
    having, asking, failing = comm.all_reduce(mine)
    if failing:
        raise_on_all(comm, failure)
    if having and asking:  # a rank that never had a piece cannot make one up
        known = comm.all_gather_object(empty)
        empty = next(example for example in known if example is not None)
    return bool(having), empty


def raise_on_all(comm: collectives.Communicator, failure: Exception | None) -> None:
    """Raise this process's failure, or an `InputError` with the text of another's.

    Returns if there is none anywhere. Collective.
    """
    mine = f"{type(failure).__name__}: {failure}" if failure is not None else None
    texts = comm.all_gather_object(mine)
    if failure is not None:
        raise failure
    for rank, text in enumerate(texts):
        if text is not None:
            raise InputError(f"rank {rank} could not make its input: {text}")


def _opened(column: Callable[[int], Iterator[Any]], number: int) -> Iterator[Any]:
    """Yield a column's pieces; what opening it raises comes with the first one."""
    yield from column(number)


def _emptied(array: Any) -> Any:
    """Return an array of no rows, or a zero in the place of a number."""
    return array[:0].copy() if array.ndim else np.zeros_like(array)


def _fetched(piece: Any, place: Place) -> Any:
    return nest.map_structure(lambda array: moved(array, place), piece)


def _per_replica(step: list[Any]) -> Any:
    return nest.map_structure(lambda *arrays: PerReplica(arrays), *step)
