"""Small, rare things that ranks tell each other: lengths, descriptors, objects.

They are moved by the stepwise executor, like everything else, inside the call that
needs them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from collectives.algorithms.stepwise import Task, run_schedule
from collectives.group import Group
from collectives.kernels import Array
from collectives.partition import Bounds, bounds_of, even_bounds
from collectives.schedules import (
    circulant_all_gather,
    pairwise_all_to_all,
    tree_broadcast,
)


def all_gather_rows(group: Group, row: Array, timeout_s: float) -> Array:
    """Return the `(size, len(row))` array of every rank's row; all of one length."""
    bounds = bounds_of([row.size] * group.size)
    return _all_gather(group, row, bounds, timeout_s).reshape(group.size, row.size)


def all_gather_bytes(group: Group, mine: bytes, timeout_s: float) -> list[bytes]:
    """Return what every rank gave, in rank order; lengths may differ."""
    length = np.array([len(mine)], np.int64)
    bounds = bounds_of(all_gather_rows(group, length, timeout_s)[:, 0].tolist())
    everything = _all_gather(group, np.frombuffer(mine, np.uint8), bounds, timeout_s)
    data = everything.tobytes()
    return [data[low:high] for low, high in pairwise(bounds)]


def broadcast_bytes(group: Group, mine: bytes, root: int, timeout_s: float) -> bytes:
    """Return what the root gave; the others' `mine` is ignored."""

    def spread(source: Array) -> Array:
        bounds = even_bounds(source.size, group.size)
        task = Task(group, bounds, source, source, root=root, timeout_s=timeout_s)
        run_schedule(task, tree_broadcast(group.rank, group.size, root))
        return source

    (length,) = spread(np.array([len(mine)], np.int64)).tolist()
    if group.rank == root:
        spread(np.frombuffer(mine, np.uint8))
        return mine
    return spread(np.empty(length, np.uint8)).tobytes()


def all_to_all_lengths(group: Group, lengths: list[int], timeout_s: float) -> list[int]:
    """Tell each rank the length that is meant for it; return what this one was told."""
    source = np.array(lengths, np.int64)
    work = source.copy()
    bounds = tuple(range(group.size + 1))
    task = Task(group, bounds, source, work, timeout_s=timeout_s, source_bounds=bounds)
    run_schedule(task, pairwise_all_to_all(group.rank, group.size))
    return [int(length) for length in work]


def _all_gather(group: Group, mine: Array, bounds: Bounds, timeout_s: float) -> Array:
    work = np.empty(bounds[-1], mine.dtype)
    work[bounds[group.rank] : bounds[group.rank + 1]] = mine
    task = Task(group, bounds, work, work, timeout_s=timeout_s)
    run_schedule(task, circulant_all_gather(group.rank, group.size))
    return work
