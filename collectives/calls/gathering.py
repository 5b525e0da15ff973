"""Calls that bring together: broadcast, all_gather, gather."""

from __future__ import annotations

from typing import Any

import numpy as np

from collectives.buffers import (
    flat_source,
    flat_work,
    same_memory,
)
from collectives.calls import (
    Call,
    check_axis,
    moving,
    row_bounds,
    row_elements,
    rows_first,
    with_length,
)
from collectives.calls.lengths import all_lengths, described, room_for
from collectives.kernels import Array
from collectives.plans import Planner


def broadcast(
    planner: Planner, x: Any, root: int, out: Any, algorithm: str | None
) -> Call:
    """Give everybody the root's array; the others' `x` tells shape and dtype."""
    root = planner.rank(root)
    array = planner.array(x)
    plan = planner.plan("broadcast", array, None, root, algorithm)
    return moving(planner, plan, array, out)


def all_gather(
    planner: Planner, x: Any, axis: int, out: Any, algorithm: str | None
) -> Call:
    """Join the ranks' arrays along `axis`; everybody gets the whole."""
    return _joining(planner, "all_gather", x, -1, axis, out, algorithm)


def gather(
    planner: Planner, x: Any, root: int, axis: int, out: Any, algorithm: str | None
) -> Call:
    """Join the ranks' arrays along `axis`; the root gets the whole, the others None."""
    root = planner.rank(root)
    out = out if planner.group.rank == root else None
    return _joining(planner, "gather", x, root, axis, out, algorithm)


def _joining(
    planner: Planner,
    collective: str,
    x: Any,
    root: int,
    axis: int,
    out: Any,
    algorithm: str | None,
) -> Call:
    array = planner.array(x)
    array = array.reshape(1) if array.ndim == 0 else array
    axis = check_axis(axis, array.ndim)
    descriptor, name, windowed = described(
        planner, collective, array, root, axis, algorithm
    )
    out_length = -1
    if out is not None:
        given = planner.array(out)
        out_length = given.shape[axis] if given.ndim == array.ndim else -1
        shape = with_length(array.shape, axis, out_length)
        out = planner.check_out(out, shape, array.dtype)

    def run() -> Array | None:
        group = planner.group
        lengths = all_lengths(planner, array.shape[axis], out_length, axis)
        whole = with_length(array.shape, axis, sum(lengths))
        bounds = row_bounds(lengths, row_elements(array.shape, axis))
        nbytes = bounds[-1] * array.itemsize
        choice = planner.choice(collective, nbytes, name)
        mine = flat_source(rows_first(array, axis), array.dtype)
        if root not in (-1, group.rank):
            whole_room = planner.row(collective, choice.algorithm).whole
            work, bounds = room_for(planner, mine, bounds, whole_room)
            task = planner.task(bounds, work, work, root=root)
            planner.runner(collective, choice, nbytes)(task)
            return None
        target = planner.empty(whole, array.dtype) if out is None else out
        rows = rows_first(target, axis)
        work, direct = flat_work(rows, array.dtype)
        place = work[bounds[group.rank] : bounds[group.rank + 1]]
        if np.may_share_memory(mine, work):  # it may lie anywhere in `out`
            mine = place if same_memory(mine, place) else mine.copy()
        if mine is not place:
            place[...] = mine
        task = planner.task(bounds, work, work, root=root)
        planner.runner(collective, choice, nbytes)(task)
        if not direct:
            rows[...] = work.reshape(rows.shape)
        return target

    return Call(descriptor, run, windowed=windowed)
