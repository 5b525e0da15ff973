"""Which rows of a dataset's batches go to the replicas of one worker.

A *piece* is the batch of one replica for one step. There are W workers with R replicas
each, n = W*R. Two rules cut pieces:

`even_pieces`: each batch of b rows becomes n pieces of ceil(b/n) rows, the last ones
short or empty; piece k goes to worker k mod W.

`cycling_pieces`: the rows of all batches are cut anew, into pieces of floor or ceil of
G/n rows, G being the batch size that the pipeline asked for.

DATA uses the first; FILE, HINT and OFF, where a worker has rows of its own, the second.
The two give a different number of rows per replica for the same batch, and
`tf.distribute` does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from strategy import nest
from strategy.data.dataset import Dataset
from strategy.data.files import Files
from strategy.data.options import AutoShardPolicy
from strategy.data.prefetching import prefetched
from strategy.data.stages import SHARD_HINT, Batch, Prefetch, Shard
from strategy.data.streams import Batched, Stream, as_array
from strategy.errors import UnbatchedError


@dataclass(frozen=True)
class Share:
    """One worker's place among all."""

    workers: int
    worker: int
    replicas: int
    """The number of replicas of all workers together."""

    @property
    def local(self) -> int:
        """The number of replicas of each worker."""
        return self.replicas // self.workers


def pieces_of(dataset: Dataset, share: Share, iteration: int) -> Iterator[Any]:
    """Return the pieces of one worker, replica after replica, step after step.

    Raises `ValueError` for a policy that this dataset cannot follow.
    """
    dataset, policy = sharded(dataset, share)
    dataset, ahead = _without_prefetch(dataset)
    stream = dataset.stream(iteration)
    batch_size = global_batch_size(dataset)
    if policy is AutoShardPolicy.DATA or batch_size is None:
        # Without DATA the batches are the worker's own, and so are all their pieces.
        mine = policy is not AutoShardPolicy.DATA
        of = replace(share, workers=1, worker=0) if mine else share
        pieces = even_pieces(stream, of)
    else:
        pieces = cycling_pieces(stream, batch_sizes(batch_size, share))
    return prefetched(pieces, ahead * share.local) if ahead else pieces


def sharded(dataset: Dataset, share: Share) -> tuple[Dataset, AutoShardPolicy]:
    """Return the dataset as this worker reads it, and the policy that AUTO becomes."""
    policy = dataset.options().experimental_distribute.auto_shard_policy
    source = dataset.source
    if policy is AutoShardPolicy.AUTO:
        in_files = isinstance(source, Files)
        policy = AutoShardPolicy.FILE if in_files else AutoShardPolicy.DATA
    if policy is AutoShardPolicy.HINT:
        stages = tuple(
            Shard(share.workers, share.worker)
            if isinstance(stage, Shard) and stage.of == SHARD_HINT
            else stage
            for stage in dataset.stages
        )
        return Dataset(source, stages, dataset.options()), policy
    if policy is AutoShardPolicy.FILE:
        if not isinstance(source, Files):
            raise ValueError(
                f"AutoShardPolicy.FILE of {dataset!r}, which reads no files; use DATA"
            )
        if len(source.paths) < share.workers:
            raise ValueError(
                f"AutoShardPolicy.FILE of {len(source.paths)} file(s) over "
                f"{share.workers} workers; wanted a file for each of them: write more "
                "files, or use AutoShardPolicy.DATA"
            )
        mine = replace(source, paths=source.paths[share.worker :: share.workers])
        return Dataset(mine, dataset.stages, dataset.options()), policy
    return dataset, policy


def batch_sizes(global_batch: int, share: Share) -> list[int]:
    """Return the sizes of a worker's pieces, which recur.

    The n sizes add up to `global_batch`, the larger ones first; each worker begins
    with those of its own replicas, so that in every step all add up to about as much.
    """
    floor, larger = divmod(global_batch, share.replicas)
    sizes = [floor + (place < larger) for place in range(share.replicas)]
    first = share.worker * share.local
    return sizes[first:] + sizes[:first]


def global_batch_size(dataset: Dataset) -> int | None:
    """Return the size that the last `batch` of the pipeline asked for, if any did."""
    sizes = [stage.size for stage in dataset.stages if isinstance(stage, Batch)]
    return sizes[-1] if sizes else None


@dataclass(frozen=True)
class Rows:
    """How to count, cut and join the rows of batches of some form."""

    count: Callable[[Any], int]
    cut: Callable[[Any, slice], Any]
    join: Callable[[list[Any], Any], Any]
    """Cuts of one batch or more, and one of these batches -> a piece."""


def even_pieces(stream: Stream, share: Share) -> Iterator[Any]:
    """Yield a worker's pieces of each batch."""
    batches, rows = _opened(stream)
    for batch in batches:
        size = -(-rows.count(batch) // share.replicas)
        for piece in range(share.worker, share.replicas, share.workers):
            part = rows.cut(batch, slice(piece * size, (piece + 1) * size))
            yield rows.join([part], batch)


def cycling_pieces(stream: Stream, sizes: Sequence[int]) -> Iterator[Any]:
    """Yield pieces of the given sizes, over and over; the last one may be short."""
    batches, rows = _opened(stream)
    wanted = cycle(sizes)
    parts: list[Any] = []
    missing = next(wanted)
    for batch in batches:
        start, end = 0, rows.count(batch)
        while start < end:
            taken = min(missing, end - start)
            parts.append(rows.cut(batch, slice(start, start + taken)))
            start, missing = start + taken, missing - taken
            if not missing:
                yield rows.join(parts, batch)
                parts, missing = [], next(wanted)
    if parts:
        yield rows.join(parts, batch)


def _opened(stream: Stream) -> tuple[Iterator[Any], Rows]:
    """Return the batches in the form that costs least, and how to handle that form."""
    if not isinstance(stream, Batched):
        return iter(stream), ARRAYS

    def looked_at(parts: list[list[Any]], batch: list[Any]) -> Any:
        tokens = [token for part in parts for token in part]
        if tokens:
            return stream.element(tokens)
        return _cut(stream.element(batch[:1]), slice(0))

    # Nobody has looked at the rows yet: only those of the pieces need be made at all.
    return stream.tokens, Rows(len, lambda tokens, rows: tokens[rows], looked_at)


def _count(batch: Any) -> int:
    """Return the number of rows, which all arrays must have."""
    shapes = [np.shape(array) for array in nest.flatten(batch)]
    if () in shapes or len({shape[0] for shape in shapes}) != 1:
        raise UnbatchedError(
            f"a step of the dataset has arrays of shapes {shapes}; wanted batches "
            "with one number of rows: call batch() on the dataset"
        )
    return int(shapes[0][0])


def _cut(batch: Any, rows: slice) -> Any:
    return nest.map_structure(lambda array: as_array(array)[rows], batch)


def _join(parts: list[Any], batch: Any) -> Any:
    if len(parts) == 1:
        return parts[0]
    return nest.map_structure(lambda *arrays: np.concatenate(arrays), *parts)


ARRAYS = Rows(_count, _cut, _join)


def _without_prefetch(dataset: Dataset) -> tuple[Dataset, int]:
    """Return the dataset without a prefetch at its end, and how far that went ahead.

    The pieces are what has to be made ahead, and of the batches only the pieces.
    """
    last = dataset.stages[-1] if dataset.stages else None
    if not isinstance(last, Prefetch):
        return dataset, 0
    return Dataset(dataset.source, dataset.stages[:-1], dataset.options()), last.ahead
