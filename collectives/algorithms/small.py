"""Rare things that ranks tell each other: lengths, descriptors, errors, objects.

They are moved by the stepwise executor, like everything else, inside the call that
needs them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from collectives.algorithms import shared
from collectives.algorithms.stepwise import Task, run_schedule
from collectives.group import Group
from collectives.kernels import Array
from collectives.partition import Bounds, bounds_of, even_bounds
from collectives.schedules import (
    NOTHING,
    Schedule,
    Step,
    chain_broadcast,
    circulant_all_gather,
    linear_gather,
    pairwise_all_to_all,
    tree_broadcast,
)
from collectives.transport import Buffer

CHAIN_BYTES = 256 << 10  # from here on segments that flow beat fewer steps


def all_gather_rows(group: Group, row: Array, timeout_s: float) -> Array:
    """Return the `(size, len(row))` array of every rank's row; all of one length."""
    bounds = bounds_of([row.size] * group.size)
    return _all_gather(group, row, bounds, timeout_s).reshape(group.size, row.size)


def all_gather_bytes(group: Group, mine: Buffer, timeout_s: float) -> list[bytes]:
    """Return what every rank gave, in rank order; lengths may differ."""
    length = np.array([len(mine)], np.int64)
    bounds = bounds_of(all_gather_rows(group, length, timeout_s)[:, 0].tolist())
    everything = _all_gather(group, np.frombuffer(mine, np.uint8), bounds, timeout_s)
    return [everything[low:high].tobytes() for low, high in pairwise(bounds)]


def gather_bytes(
    group: Group, mine: Buffer, root: int, timeout_s: float
) -> list[Buffer]:
    """Return on the root what every rank gave, in rank order; elsewhere nothing."""
    length = np.array([len(mine)], np.int64)
    lengths = _gather(group, length, [1] * group.size, root, timeout_s).tolist()
    everything = _gather(group, np.frombuffer(mine, np.uint8), lengths, root, timeout_s)
    if group.rank != root:
        return []
    return [everything[low:high] for low, high in pairwise(bounds_of(lengths))]


def broadcast_bytes(group: Group, mine: Buffer, root: int, timeout_s: float) -> Buffer:
    """Return what the root gave; the others' `mine` is ignored."""
    length = np.array([len(mine)], np.int64)
    broadcast_flat(group, length, root, timeout_s)
    here = group.rank == root
    flat = np.frombuffer(mine, np.uint8) if here else np.empty(length[0], np.uint8)
    broadcast_flat(group, flat, root, timeout_s)
    return flat


def broadcast_flat(group: Group, flat: Array, root: int, timeout_s: float) -> None:
    """Overwrite a flat array by that of the root, which has the same length."""
    if group.one_board and group.window is not None:
        shared.broadcast(Task(group, (), flat, flat, root=root, timeout_s=timeout_s))
        return
    make = chain_broadcast if flat.nbytes >= CHAIN_BYTES else tree_broadcast
    _move(group, flat, make(group.rank, group.size, root), timeout_s)


def hand_over(
    group: Group, flat: Array, source: int, target: int, timeout_s: float
) -> None:
    """Overwrite the target's flat array by that of the source; only they call it."""
    everything = (0, group.size)
    if group.rank == source:
        step = Step(target, everything, -1, NOTHING, reduce=False)
    else:
        step = Step(-1, NOTHING, source, everything, reduce=False)
    _move(group, flat, [step], timeout_s)


def all_to_all_lengths(group: Group, lengths: list[int], timeout_s: float) -> list[int]:
    """Tell each rank the length that is meant for it; return what this one was told."""
    source = np.array(lengths, np.int64)
    work = source.copy()
    bounds = tuple(range(group.size + 1))
    task = Task(group, bounds, source, work, timeout_s=timeout_s, source_bounds=bounds)
    if group.one_board and group.window is not None:
        shared.all_to_all(task)
    else:
        run_schedule(task, pairwise_all_to_all(group.rank, group.size))
    return [int(length) for length in work]


def all_gather_errors(group: Group, mine: str, timeout_s: float) -> str:
    """Return what is wrong on which ranks, the same on all; empty if nothing is.

    For what a rank can only find out after something has been moved.
    """
    flag = np.array([bool(mine)], np.int64)
    if not all_gather_rows(group, flag, timeout_s).any():
        return ""
    texts = all_gather_bytes(group, mine.encode(), timeout_s)
    return "; ".join(f"rank {r}: {t.decode()}" for r, t in enumerate(texts) if t)


def _all_gather(group: Group, mine: Array, bounds: Bounds, timeout_s: float) -> Array:
    work = np.empty(bounds[-1], mine.dtype)
    work[bounds[group.rank] : bounds[group.rank + 1]] = mine
    task = Task(group, bounds, work, work, timeout_s=timeout_s)
    if group.one_board and group.window is not None:
        shared.all_gather(task)
    else:
        run_schedule(task, circulant_all_gather(group.rank, group.size))
    return work


def _gather(
    group: Group, mine: Array, lengths: list[int], root: int, timeout_s: float
) -> Array:
    """Return, on the root, everybody's elements; only the root needs the lengths."""
    rank, size = group.rank, group.size
    if rank == root:
        bounds = bounds_of(lengths)
        work = np.empty(bounds[-1], mine.dtype)
        work[bounds[rank] : bounds[rank + 1]] = mine
    else:
        bounds = (0,) * (rank + 1) + (mine.size,) * (size - rank)
        work = mine
    task = Task(group, bounds, work, work, root=root, timeout_s=timeout_s)
    if group.one_board and group.window is not None:
        shared.gather(task)
    else:
        run_schedule(task, linear_gather(rank, size, root))
    return work


def _move(group: Group, flat: Array, schedule: Schedule, timeout_s: float) -> None:
    """Run a schedule that moves the whole of a flat array, in place."""
    bounds = even_bounds(flat.size, group.size)
    run_schedule(Task(group, bounds, flat, flat, timeout_s=timeout_s), schedule)
