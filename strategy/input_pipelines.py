"""Makes distributed datasets: of one that all processes share, or of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import collectives
from strategy import nest
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
from strategy.distributed_dataset import DistributedDataset, raise_on_all
from strategy.errors import InputError
from strategy.input_context import InputContext, InputOptions, fetches, per_replica
from strategy.placing import Place
from strategy.values import PerReplica

T = TypeVar("T")


def distribute(
    dataset: Iterable[Any],
    context: InputContext,
    comm: collectives.Communicator | None = None,
    options: InputOptions | None = None,
    can_pad: bool = True,
    places: Sequence[Place] = (),
) -> DistributedDataset:
    """Share out the batches of a dataset, or of any iterable, among all replicas.

    Every process must give the same dataset; where they can be told apart by their
    sources, sizes and seeds, `InputError` is raised on all of them. Collective over
    `comm`, which is None for one process. `can_pad=False`: the first replica without a
    piece ends an epoch, and what the others have is lost. `places` are those of the
    local replicas, where pieces go unless the options say otherwise.
    """
    if per_replica(options):
        raise NotImplementedError(
            "PER_REPLICA for a dataset; wanted distribute_datasets_from_function, "
            "which makes one for each replica"
        )
    whole = dataset if isinstance(dataset, Dataset) else Dataset.from_iterable(dataset)
    if context.num_replicas_in_sync == 1:
        whole, _ = sharded(whole, share_of(context))
        length = whole.cardinality()
        return DistributedDataset(
            [whole.iteration],
            context,
            None,
            pads=True,
            length=None if length < 0 else length,
            spec=lambda: whole.element_spec,
            places=places if fetches(options) else (),
        )
    share = share_of(context)

    def look() -> tuple[int, bool]:
        _, policy = sharded(whole, share)
        length = whole.cardinality() if policy is AutoShardPolicy.DATA else -1
        return length, can_pad and _can_end_unevenly(whole, share)

    length, pads = _together(comm, look)
    _check_alike(whole, comm)
    return DistributedDataset(
        [lambda iteration: pieces_of(whole, share, iteration)],
        context,
        comm,
        pads,
        length=None if length < 0 else length,
        spec=lambda: _spec(whole, share, cut=True),
        places=places if fetches(options) else (),
    )


def from_function(
    dataset_fn: Callable[[InputContext], Iterable[Any]],
    context: InputContext,
    comm: collectives.Communicator | None = None,
    options: InputOptions | None = None,
    can_pad: bool = True,
    places: Sequence[Place] = (),
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

    def make() -> tuple[list[Dataset], bool]:
        made = [dataset_fn(each) for each in contexts_given]
        datasets = [
            each if isinstance(each, Dataset) else Dataset.from_iterable(each)
            for each in made
        ]
        ends = any(_can_end_unevenly(each, share) for each in datasets)
        return datasets, can_pad and ends

    datasets, pads = _together(comm, make)
    return DistributedDataset(
        [each.iteration for each in datasets],
        context,
        comm,
        pads,
        length=None,
        spec=lambda: _spec(datasets[0], share, cut=False),
        places=places if fetches(options) else (),
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


def _together(comm: collectives.Communicator | None, action: Callable[[], T]) -> T:
    """Return what `action` gives here; if it fails anywhere, raise on all processes."""
    try:
        result = action()
    except Exception as error:
        if comm is not None and comm.size > 1:
            raise_on_all(comm, error)
        raise
    if comm is not None and comm.size > 1:
        raise_on_all(comm, None)
    return result


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
