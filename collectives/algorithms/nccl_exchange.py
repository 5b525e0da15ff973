"""Reductions in rank order on device memory: NCCL carries, one kernel combines.

Each rank gets what all have of its block, combines it from left to right
(gpu/slice_sum.py), and hands the block on. It is `ordered` on devices, and the
`exchange` of schedules/pairwise.py: an all-reduce of n bytes takes two rounds, in which
each rank sends n(p-1)/p bytes, and room for n more.

Contributions and results travel, never partial sums. So narrow floats travel as they
are, half the bytes of float32; the bits follow from the inputs and the order of the
ranks; and any op goes for which there is a kernel. That is how `nccl` sums narrow
floats, whose additions NCCL would round one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from collectives.algorithms import Algorithm, nccl
from collectives.algorithms.nccl import Completing, blocks_of, bring, exchange, spread
from collectives.algorithms.stepwise import Task
from collectives.gpu import slice_sum
from collectives.kernels import Kernel
from collectives.partition import bounds_of, even_bounds
from collectives.transport.nccl import Nccl

Run = Callable[[Task], None]


def refusal(collective: str, kernel: Kernel | None) -> str:
    """Return why a call cannot be made so; empty where it can."""
    return slice_sum.refusal(kernel) if kernel is not None else ""


def all_reduce(task: Task) -> None:
    """Combine each block on its rank, and give it to everybody."""
    with Completing(task) as its:
        _combine(task, its)
        spread(task, its, task.work)


def reduce(task: Task) -> None:
    """Combine each block on its rank, and give it to the root."""
    with Completing(task) as its:
        _combine(task, its)
        bring(task, its)


def reduce_scatter(task: Task) -> None:
    """Combine each block on its rank."""
    with Completing(task) as its:
        _combine(task, its)


def flowing_all_reduce(
    task: Task, sources: Sequence[Any], works: Sequence[Any]
) -> None:
    """Combine several arrays of one dtype as one."""
    places = pairwise(bounds_of([work.size for work in works]))
    packed = np.concatenate(sources)
    bounds = even_bounds(packed.size, task.group.size)
    all_reduce(replace(task, bounds=bounds, source=packed, work=packed))
    for work, (low, high) in zip(works, places, strict=True):
        work[...] = packed[low:high]


def _combine(task: Task, its: Nccl) -> None:
    """Put this rank's block of the result into its place in `task.work`."""
    group, source, kernel = task.group, task.source, task.kernel
    assert kernel is not None, "a task that combines needs a kernel"
    (low, high), itemsize = blocks_of(task.bounds, 1)[group.rank], source.itemsize
    # Where in the room what each rank has of this block will lie, in elements.
    rows = blocks_of(tuple((high - low) * r for r in range(group.size + 1)), 1)
    room = np.empty((high - low) * group.size, source.dtype, like=source)
    sends = list(enumerate(blocks_of(task.bounds, itemsize)))
    receives = [(r, (a * itemsize, b * itemsize)) for r, (a, b) in enumerate(rows)]
    exchange(task, its, source, sends, room, receives)
    if high > low:
        parts = [room[a:b] for a, b in rows]
        parts[group.rank] = source[low:high]
        own = task.work[low:high]
        slice_sum.slice_sum(kernel, own.dtype, parts, [own], group.divisor)


def _narrow(task: Task) -> bool:
    """Tell whether elements are to be combined in a wider dtype than they travel as."""
    return task.kernel is not None and task.kernel.work_dtype != task.work.dtype


def _or_exchange(run: Run, exchanging: Run) -> Run:
    """Return what takes `run`, and the exchange for narrow floats."""

    def either(task: Task) -> None:
        (exchanging if _narrow(task) else run)(task)

    return either


def _either_flow(task: Task, sources: Sequence[Any], works: Sequence[Any]) -> None:
    flow = flowing_all_reduce if _narrow(task) else nccl.flowing_all_reduce
    flow(task, sources, works)


def _row(run: Run) -> Algorithm:
    return Algorithm(run, "NVIDIA's own")


def _ordered(run: Run) -> Algorithm:
    return Algorithm(
        run, "by NCCL, combined in rank order", in_order=True, sums_stay=True
    )


NCCL_ROWS = {
    "all_reduce": Algorithm(
        _or_exchange(nccl.all_reduce, all_reduce),
        "NVIDIA's own",
        flow=_either_flow,
        sums_stay=True,
    ),
    "reduce": replace(_row(_or_exchange(nccl.reduce, reduce)), sums_stay=True),
    "reduce_scatter": replace(
        _row(_or_exchange(nccl.reduce_scatter, reduce_scatter)), sums_stay=True
    ),
    "broadcast": _row(nccl.broadcast),
    "all_gather": _row(nccl.all_gather),
    "gather": _row(nccl.gather),
    "all_to_all": _row(nccl.all_to_all),
}
ROWS = {
    "all_reduce": replace(_ordered(all_reduce), flow=flowing_all_reduce),
    "reduce": _ordered(reduce),
    "reduce_scatter": _ordered(reduce_scatter),
}
