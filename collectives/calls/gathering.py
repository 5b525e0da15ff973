"""Calls that move: broadcast, all_gather, gather, scatter, all_to_all.

Lengths along one axis may differ by rank. They are no part of the descriptor, which has
to be the same everywhere; the ranks tell each other once they have agreed on the rest.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from collectives.algorithms import TABLE, native
from collectives.algorithms.small import (
    all_gather_errors,
    all_gather_rows,
    all_to_all_lengths,
    broadcast_bytes,
)
from collectives.board import FIRST, SECOND
from collectives.buffers import (
    as_array,
    check_out,
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
    split_lengths,
    with_length,
)
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.kernels import Array
from collectives.partition import Bounds
from collectives.plans import Planner
from collectives.selection import wanted


def broadcast(
    planner: Planner, x: Any, root: int, out: Any, algorithm: str | None
) -> Call:
    """Give everybody the root's array; the others' `x` tells shape and dtype."""
    root = planner.rank(root)
    array = as_array(x)
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
    array = as_array(x)
    array = array.reshape(1) if array.ndim == 0 else array
    axis = check_axis(axis, array.ndim)
    name, windowed = _requested(planner, collective, algorithm)
    descriptor = Descriptor(
        collective,
        dtype=str(array.dtype),
        shape=with_length(array.shape, axis, -1),
        root=root,
        axis=axis,
        algorithm=name,
    )
    out_length = -1
    if out is not None:
        given = as_array(out)
        out_length = given.shape[axis] if given.ndim == array.ndim else -1
        shape = with_length(array.shape, axis, out_length)
        out = check_out(out, shape, array.dtype)

    def run() -> Array | None:
        group = planner.group
        lengths = _lengths(planner, array.shape[axis], out_length, axis)
        whole = with_length(array.shape, axis, sum(lengths))
        bounds = row_bounds(lengths, row_elements(array.shape, axis))
        nbytes = bounds[-1] * array.itemsize
        choice = planner.choose(collective, nbytes, None, name)
        mine = flat_source(np.moveaxis(array, axis, 0), array.dtype)
        if root not in (-1, group.rank):
            whole_room = TABLE[collective][choice.algorithm].whole
            work, bounds = _room(mine, bounds, group.rank, whole_room)
            task = planner.task(bounds, work, work, root=root)
            planner.runner(collective, choice, nbytes)(task)
            return None
        target = np.empty(whole, array.dtype) if out is None else out
        rows = np.moveaxis(target, axis, 0)
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
    name, windowed = _requested(planner, "scatter", algorithm)
    descriptor = Descriptor("scatter", root=root, algorithm=name)
    header, rows = b"", None
    if group.rank == root:
        if x is None:
            raise InvalidArgumentError("x is None on the root; wanted the whole array")
        array = as_array(x)
        axis = check_axis(axis, array.ndim)
        lengths = split_lengths(array.shape[axis], group.size, splits)
        header = pickle.dumps((array.dtype, array.shape, axis, lengths))
        rows = np.moveaxis(array, axis, 0)

    def run() -> Array:
        timeout_s = planner.options.timeout_s
        told = pickle.loads(broadcast_bytes(group, header, root, timeout_s))
        dtype, shape, axis, lengths = told
        bounds = row_bounds(lengths, row_elements(shape, axis))
        nbytes = bounds[-1] * dtype.itemsize
        choice = planner.choose("scatter", nbytes, None, name)
        own_shape = with_length(shape, axis, lengths[group.rank])
        target = _common_out(planner, out, own_shape, dtype)
        if rows is not None:
            source = flat_source(rows, dtype)
            task = planner.task(bounds, source, source, root=root)
            planner.runner("scatter", choice, nbytes)(task)
            mine = source[bounds[root] : bounds[root + 1]]
        else:
            length = bounds[group.rank + 1] - bounds[group.rank]
            whole_room = TABLE["scatter"][choice.algorithm].whole
            room, blocks = _room(
                np.empty(length, dtype), bounds, group.rank, whole_room
            )
            task = planner.task(blocks, room, room, root=root)
            planner.runner("scatter", choice, nbytes)(task)
            mine = room[blocks[group.rank] : blocks[group.rank + 1]]
        own = np.moveaxis(target, axis, 0)
        own[...] = mine.reshape(own.shape)
        return target

    return Call(descriptor, run, windowed=windowed)


def all_to_all(
    planner: Planner, x: Any, axis: int, splits: Any, out: Any, algorithm: str | None
) -> Call:
    """Send each rank its block of rows; get the ranks' blocks joined in rank order."""
    array, group = as_array(x), planner.group
    axis = check_axis(axis, array.ndim)
    lengths = split_lengths(array.shape[axis], group.size, splits)
    name, windowed = _requested(planner, "all_to_all", algorithm)
    descriptor = Descriptor(
        "all_to_all",
        dtype=str(array.dtype),
        shape=with_length(array.shape, axis, -1),
        axis=axis,
        algorithm=name,
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
        target = _common_out(planner, out, shape, array.dtype)
        source = flat_source(np.moveaxis(array, axis, 0), array.dtype)
        rows = np.moveaxis(target, axis, 0)
        work, direct = flat_work(rows, array.dtype)
        if np.may_share_memory(source, work):
            source = source.copy()
        own = source[source_bounds[rank] : source_bounds[rank + 1]]
        work[bounds[rank] : bounds[rank + 1]] = own
        row = np.array([max(source.nbytes, work.nbytes)], np.int64)
        most = int(_rows(planner, row).max())
        choice = planner.choose("all_to_all", most, None, name)
        task = planner.task(bounds, source, work, source_bounds=source_bounds)
        planner.runner("all_to_all", choice, most)(task)
        if not direct:
            rows[...] = work.reshape(rows.shape)
        return target

    return Call(descriptor, run, windowed=windowed)


def _requested(
    planner: Planner, collective: str, algorithm: str | None
) -> tuple[str, bool]:
    """Return the name that is asked for, and whether it wants a window.

    Which algorithm that is, where it is `auto`, depends on lengths that are not known.

    Raises:
        UnsupportedError: it cannot be had.
    """
    name = wanted(collective, planner.options, algorithm)
    choice = planner.choose(collective, 0, None, name)
    return name, planner.wants_window(collective, choice)


def _rows(planner: Planner, row: Array) -> Array:
    """Return every rank's row of two numbers, by the fastest way there is."""
    group, timeout_s = planner.group, planner.options.timeout_s
    if group.one_board and group.board is not None:
        group.board.write(FIRST, int(row[0]))
        group.board.write(SECOND, int(row[-1]))
        group.hand_over(timeout_s)
        columns = group.board.read(FIRST), group.board.read(SECOND)
        rows: Array = np.array(columns[: row.size], np.int64).T
        return rows
    if group.native is not None:
        return native.all_gather_rows(group, row, timeout_s)
    return all_gather_rows(group, row, timeout_s)


def _lengths(planner: Planner, length: int, out_length: int, axis: int) -> list[int]:
    """Exchange lengths; raise the same error everywhere if an `out` does not fit."""
    row = np.array([length, out_length], np.int64)
    rows = _rows(planner, row)
    lengths: list[int] = rows[:, 0].tolist()
    for rank, given in enumerate(rows[:, 1].tolist()):
        if given not in (-1, sum(lengths)):
            raise InvalidArgumentError(
                f"rank {rank}: out has length {given} along axis {axis}; "
                f"wanted {sum(lengths)}, the sum of {lengths}"
            )
    return lengths


def _common_out(
    planner: Planner, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Return the target, or raise the same error everywhere if an `out` does not fit.

    Here the shape that is wanted is known only after the ranks have talked.
    """
    error, target = "", None
    if out is None:
        target = np.empty(shape, dtype)
    else:
        try:
            target = check_out(out, shape, dtype)
        except (TypeError, ValueError) as own:
            error = str(own)
    errors = all_gather_errors(planner.group, error, planner.options.timeout_s)
    if errors:
        raise InvalidArgumentError(errors)
    assert target is not None
    return target


def _room(mine: Array, bounds: Bounds, rank: int, whole: bool) -> tuple[Array, Bounds]:
    """Return where a rank that is not the root works, and its blocks there.

    Either there is room for the whole array, or all blocks but its own are empty.
    """
    if whole:
        work = np.empty(bounds[-1], mine.dtype)
        work[bounds[rank] : bounds[rank + 1]] = mine
        return work, bounds
    blocks = len(bounds) - 1
    return mine, (0,) * (rank + 1) + (mine.size,) * (blocks - rank)
