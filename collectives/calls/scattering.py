"""Calls that hand out: scatter, all_to_all."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from collectives.algorithms.small import (
    all_to_all_lengths,
    broadcast_bytes,
)
from collectives.buffers import (
    flat_source,
    flat_work,
)
from collectives.calls import (
    Call,
    check_axis,
    row_bounds,
    row_elements,
    rows_first,
    split_lengths,
    with_length,
)
from collectives.calls.lengths import (
    all_rows,
    common_out,
    described,
    requested,
    room_for,
)
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.kernels import Array
from collectives.plans import Planner


def scatter(
    planner: Planner,
    x: Any,
    root: int,
    axis: int,
    splits: Any,
    out: Any,
    algorithm: str | None,
) -> Call:
    """Give each rank its block of rows of the root's array; `x` is the root's alone."""
    root = planner.rank(root)
    group = planner.group
    name, windowed = requested(planner, "scatter", algorithm)
    descriptor = Descriptor("scatter", root=root, algorithm=name)
    header, rows = b"", None
    if group.rank == root:
        if x is None:
            raise InvalidArgumentError("x is None on the root; wanted the whole array")
        array = planner.array(x)
        axis = check_axis(axis, array.ndim)
        lengths = split_lengths(array.shape[axis], group.size, splits)
        header = pickle.dumps((array.dtype, array.shape, axis, lengths))
        rows = rows_first(array, axis)

    def run() -> Array:
        timeout_s = planner.options.timeout_s
        told = pickle.loads(broadcast_bytes(group, header, root, timeout_s))
        dtype, shape, axis, lengths = told
        bounds = row_bounds(lengths, row_elements(shape, axis))
        nbytes = bounds[-1] * dtype.itemsize
        choice = planner.choice("scatter", nbytes, name)
        own_shape = with_length(shape, axis, lengths[group.rank])
        target = common_out(planner, out, own_shape, dtype)
        if rows is not None:
            source = flat_source(rows, dtype)
            task = planner.task(bounds, source, source, root=root)
            planner.runner("scatter", choice, nbytes)(task)
            mine = source[bounds[root] : bounds[root + 1]]
        else:
            length = bounds[group.rank + 1] - bounds[group.rank]
            whole_room = planner.row("scatter", choice.algorithm).whole
            mine = planner.empty(length, dtype)
            room, blocks = room_for(planner, mine, bounds, whole_room)
            task = planner.task(blocks, room, room, root=root)
            planner.runner("scatter", choice, nbytes)(task)
            mine = room[blocks[group.rank] : blocks[group.rank + 1]]
        own = rows_first(target, axis)
        own[...] = mine.reshape(own.shape)
        return target

    return Call(descriptor, run, windowed=windowed)


def all_to_all(
    planner: Planner, x: Any, axis: int, splits: Any, out: Any, algorithm: str | None
) -> Call:
    """Send each rank its block of rows; get the ranks' blocks joined in rank order."""
    array, group = planner.array(x), planner.group
    axis = check_axis(axis, array.ndim)
    lengths = split_lengths(array.shape[axis], group.size, splits)
    descriptor, name, windowed = described(
        planner, "all_to_all", array, -1, axis, algorithm
    )

    def run() -> Array:
        timeout_s, rank = planner.options.timeout_s, group.rank
        incoming = all_to_all_lengths(group, lengths, timeout_s)
        elements = row_elements(array.shape, axis)
        bounds, source_bounds = (
            row_bounds(incoming, elements),
            row_bounds(lengths, elements),
        )
        shape = with_length(array.shape, axis, sum(incoming))
        target = common_out(planner, out, shape, array.dtype)
        source = flat_source(rows_first(array, axis), array.dtype)
        rows = rows_first(target, axis)
        work, direct = flat_work(rows, array.dtype)
        if np.may_share_memory(source, work):
            source = source.copy()
        own = source[source_bounds[rank] : source_bounds[rank + 1]]
        work[bounds[rank] : bounds[rank + 1]] = own
        row = np.array([max(source.nbytes, work.nbytes)], np.int64)
        most = int(all_rows(planner, row).max())
        choice = planner.choice("all_to_all", most, name)
        task = planner.task(bounds, source, work, source_bounds=source_bounds)
        planner.runner("all_to_all", choice, most)(task)
        if not direct:
            rows[...] = work.reshape(rows.shape)
        return target

    return Call(descriptor, run, windowed=windowed)
