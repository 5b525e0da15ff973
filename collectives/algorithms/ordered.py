"""Reductions that add strictly by rank: `((x0 + x1) + x2) + …` for every element.

Each rank collects everybody's part of its block (pairwise exchange) and adds them up in
the order of ranks; an all-reduce then gathers the blocks. As many bytes on the wire as
a ring, and bits that depend on nothing but the inputs: not on sizes, positions, packs
or segments. Costs room for one more array a rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from collectives.algorithms.stepwise import Task, run_schedule
from collectives.kernels import Array
from collectives.narrow import add_narrow, add_to, narrow_into, widen
from collectives.partition import bounds_of, segments
from collectives.schedules import pairwise_all_to_all, ring_all_gather


def reduce_scatter(task: Task) -> None:
    """Leave this rank's block, combined in rank order, in its place in `work`."""
    group, kernel = task.group, task.kernel
    assert kernel is not None, "a reduction needs a kernel"
    low, high = task.bounds[group.rank], task.bounds[group.rank + 1]
    length = high - low
    parts = np.empty(group.size * length, task.work.dtype)
    parts[group.rank * length :][:length] = task.source[low:high]
    run_schedule(
        Task(
            group,
            bounds_of([length] * group.size),
            task.source,
            parts,
            timeout_s=task.timeout_s,
            segment_bytes=task.segment_bytes,
            source_bounds=task.bounds,
        ),
        pairwise_all_to_all(group.rank, group.size),
    )
    rows = parts.reshape(group.size, length)
    piece = max(1, task.segment_bytes // parts.itemsize)
    widens = kernel.work_dtype != parts.dtype
    room = np.empty(2 * min(piece, length) if widens else 0, np.float32)
    with np.errstate(all="ignore"):
        for start, stop in segments(0, length, piece):
            target = task.work[low + start : low + stop]
            combine_in_order(task, rows[:, start:stop], target, room)


def combine_in_order(
    task: Task, parts: Iterable[Array], target: Array, room: Array, last: bool = True
) -> None:
    """Put the sum of what the ranks have, one after the other, into `target`.

    Args:
        task: what it is a part of.
        parts: equally long flat arrays, by rank; two at a time must be there.
        target: none of the parts, except perhaps the first or the second.
        room: twice as many float32 as there are elements, if narrow floats are added.
        last: whether the sum is complete then.
    """
    kernel, rest, size = task.kernel, iter(parts), target.size
    assert kernel is not None, "a reduction needs a kernel"
    first, second = next(rest), next(rest, None)
    if kernel.work_dtype == target.dtype:
        if second is None:
            target[...] = first
        else:
            kernel.combine(first, second, out=target)
        for part in rest:
            kernel.combine(target, part, out=target)
        if last:
            kernel.finish(target, task.group.divisor)
        return
    if (
        second is not None
        and (last and task.group.size == 2 and kernel.op == "sum")
        and add_narrow(first, second, target)
    ):
        return
    total, wide = room[:size], room[size : 2 * size]
    widen(first, total)
    for part in () if second is None else chain((second,), rest):
        if kernel.combine is np.add:
            add_to(total, part, wide)
        else:
            kernel.combine(total, widen(part, wide), out=total)
    if last:
        kernel.finish(total, task.group.divisor)
    narrow_into(total, target)


def all_reduce(task: Task) -> None:
    """Reduce-scatter in rank order, then gather the blocks around the ring."""
    reduce_scatter(task)
    blocks = Task(
        task.group,
        task.bounds,
        task.work,
        task.work,
        timeout_s=task.timeout_s,
        segment_bytes=task.segment_bytes,
    )
    run_schedule(blocks, ring_all_gather(task.group.rank, task.group.size))
