"""The steps of a dataset for the replicas of this process.

A step has a piece for every local replica. All processes make the same number of steps,
whatever they hold: before each one they tell one another whether they have a piece, and
replicas without one take part with an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

import collectives
from strategy import contexts, nest
from strategy.data.dataset import Dataset
from strategy.data.options import AutoShardPolicy
from strategy.data.sharing import (
    Share,
    batch_sizes,
    global_batch_size,
    pieces_of,
    sharded,
)
from strategy.data.sources import INFINITE
from strategy.data.spec import shapes_are_known
from strategy.data.streams import as_array
from strategy.errors import InputError, OutOfRangeError
from strategy.input_context import InputContext, InputOptions, per_replica
from strategy.values import PerReplica

T = TypeVar("T")


class DistributedDataset:
    """Steps of this process's replicas; iterating starts over, and may be collective.

    The elements are nests whose leaves are PerReplica, or bare where there is one
    replica in all. Make it with `distribute` or `from_function`.
    """

    def __init__(
        self,
        columns: list[Callable[[int], Iterator[Any]]],
        context: InputContext,
        comm: collectives.Communicator | None,
        pads: bool,
        length: int | None,
        spec: Callable[[], Any],
    ) -> None:
        """Take pieces from `columns`: one for all local replicas in turn, or one each.

        Args:
            columns: iteration number -> pieces.
            context: the place of this process among all.
            comm: the processes, None where there is one.
            pads: whether replicas without a piece get an empty one until all are done.
            length: the number of steps, where it is known.
            spec: what gives `element_spec`.
        """
        self._columns, self._context, self._length = columns, context, length
        self._comm = comm if pads and comm is not None and comm.size > 1 else None
        self._pads, self._spec = pads, spec
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
        return DistributedIterator(self._steps(number), self)

    def __len__(self) -> int:
        """Return the number of steps; `TypeError` where only reading can tell."""
        if self._length is None:
            raise TypeError("the number of steps is not known before the last one")
        return self._length

    def _steps(self, number: int) -> Iterator[Any]:
        local = self._context.num_replicas_in_sync // self._context.num_input_pipelines
        columns = [column(number) for column in self._columns]
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


def distribute(
    dataset: Iterable[Any],
    context: InputContext,
    comm: collectives.Communicator | None = None,
    options: InputOptions | None = None,
    can_pad: bool = True,
) -> DistributedDataset:
    """Share out the batches of a dataset, or of any iterable, among all replicas.

    Every process must give the same dataset; where they can be told apart by their
    sources, sizes and seeds, `InputError` is raised on all of them. Collective over
    `comm`, which is None for one process. `can_pad=False`: the first replica without a
    piece ends an epoch, and what the others have is lost.
    """
    if per_replica(options):
        raise NotImplementedError(
            "PER_REPLICA for a dataset; wanted distribute_datasets_from_function, "
            "which makes one for each replica"
        )
    whole = dataset if isinstance(dataset, Dataset) else Dataset.from_iterable(dataset)
    if context.num_replicas_in_sync == 1:
        length = whole.cardinality()
        return DistributedDataset(
            [whole.iteration],
            context,
            None,
            pads=True,
            length=None if length < 0 else length,
            spec=lambda: whole.element_spec,
        )
    share = share_of(context)
    _check_alike(whole, comm)
    _, policy = sharded(whole, share)  # raises here, and not at the first step
    length = whole.cardinality() if policy is AutoShardPolicy.DATA else -1
    return DistributedDataset(
        [lambda iteration: pieces_of(whole, share, iteration)],
        context,
        comm,
        can_pad and _can_end_unevenly(whole, share),
        length=None if length < 0 else length,
        spec=lambda: _spec(whole, share, cut=True),
    )


def from_function(
    dataset_fn: Callable[[InputContext], Iterable[Any]],
    context: InputContext,
    comm: collectives.Communicator | None = None,
    options: InputOptions | None = None,
    can_pad: bool = True,
) -> DistributedDataset:
    """Give each local replica whole elements of what `dataset_fn` makes, in turn."""
    share = share_of(context)
    contexts_given = [context]
    if per_replica(options):
        if context.num_input_pipelines > 1:
            raise NotImplementedError(
                "PER_REPLICA in several processes; wanted PER_WORKER, whose function "
                "is told how many pipelines there are"
            )
        contexts_given = [
            InputContext(share.replicas, replica, share.replicas)
            for replica in range(share.replicas)
        ]
    made = [dataset_fn(each) for each in contexts_given]
    datasets = [
        each if isinstance(each, Dataset) else Dataset.from_iterable(each)
        for each in made
    ]
    pads = can_pad and any(_can_end_unevenly(each, share) for each in datasets)
    return DistributedDataset(
        [each.iteration for each in datasets],
        context,
        comm,
        pads,
        length=None,
        spec=lambda: _spec(datasets[0], share, cut=False),
    )


def share_of(context: InputContext) -> Share:
    """Return the place of a process; `ValueError` unless all feed as many replicas."""
    workers, replicas = context.num_input_pipelines, context.num_replicas_in_sync
    if replicas % workers or not 0 <= context.input_pipeline_id < workers:
        raise ValueError(
            f"{context} for {replicas} replicas; wanted the same number of replicas "
            "for every pipeline, and an id below their total"
        )
    return Share(workers, context.input_pipeline_id, replicas)


def _check_alike(dataset: Dataset, comm: collectives.Communicator | None) -> None:
    """Raise `InputError` on all ranks if they gave datasets that differ."""
    if comm is None or comm.size == 1:
        return
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy is AutoShardPolicy.OFF:
        return  # that is what OFF is for
    everywhere = comm.all_gather_object(dataset.describe())
    for rank, theirs in enumerate(everywhere):
        if theirs != everywhere[0]:
            raise InputError(
                f"the datasets to share out differ: rank 0 has {everywhere[0]}, rank "
                f"{rank} has {theirs}; give all ranks the same one, or use "
                "AutoShardPolicy.OFF"
            )


def _can_end_unevenly(dataset: Dataset, share: Share) -> bool:
    """Return whether some replicas may be without a piece while others have one.

    This is `tf.distribute`'s rule: where all shapes are known it takes it that a step
    is complete, and drops what is left at the end.
    """
    if dataset.cardinality() == INFINITE:
        return False
    return share.workers > 1 or not shapes_are_known(dataset)


def _agree(
    comm: collectives.Communicator, have: bool, empty: Any, failure: Exception | None
) -> tuple[bool, Any]:
    """Return whether any process has a piece, and what an empty one looks like.

    If making a piece failed somewhere, that exception is raised there, and elsewhere
    `InputError` with its text.
    """
    mine = np.array([have, empty is None, failure is not None], np.int64)
    having, asking, failing = comm.all_reduce(mine)
    if failing:
        texts = comm.all_gather_object(
            failure and f"{type(failure).__name__}: {failure}"
        )
        if failure is not None:
            raise failure
        rank = next(rank for rank, text in enumerate(texts) if text)
        raise InputError(f"rank {rank} could not make its input: {texts[rank]}")
    if having and asking:  # a rank that never had a piece cannot make one up
        known = comm.all_gather_object(empty)
        empty = next(example for example in known if example is not None)
    return bool(having), empty


def _emptied(array: Any) -> Any:
    """Return an array of no rows, or a zero in the place of a number."""
    return array[:0].copy() if array.ndim else np.zeros_like(array)


def _per_replica(step: list[Any]) -> Any:
    return nest.map_structure(lambda *arrays: PerReplica(arrays), *step)


def _spec(dataset: Dataset, share: Share, cut: bool) -> Any:
    """Return what the steps look like, from what the dataset's elements look like."""

    def leaf(spec: Any) -> PerReplica:
        size = global_batch_size(dataset)
        if cut and spec.shape:
            sizes = set(batch_sizes(size, share)) if size else set()
            known = spec.shape[0] is not None and len(sizes) == 1
            rows = sizes.pop() if known and share.workers == 1 else None
            spec = type(spec)((rows, *spec.shape[1:]), spec.dtype)
        elif share.workers > 1 and spec.shape:
            spec = spec.of_any_rows()
        return PerReplica([spec] * share.local)

    return nest.map_structure(leaf, dataset.element_spec)
