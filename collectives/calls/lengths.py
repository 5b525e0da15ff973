"""Lengths along one axis that may differ by rank.

They are no part of the descriptor, which has to be the same everywhere; the ranks tell
each other once they have agreed on the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collectives.algorithms import AUTO, native
from collectives.algorithms.small import (
    all_gather_errors,
    all_gather_rows,
)
from collectives.board import FIRST, SECOND
from collectives.calls import (
    with_length,
)
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.kernels import Array
from collectives.partition import Bounds
from collectives.plans import Planner
from collectives.ranges import OPEN, parse

LARGEST = 1 << 40  # bytes


def described(
    planner: Planner,
    collective: str,
    array: Array,
    root: int,
    axis: int,
    algorithm: str | None,
) -> tuple[Descriptor, str, bool]:
    """Return the descriptor of a call whose lengths along an axis may differ.

    And what `requested` returns.
    """

    def make() -> tuple[Descriptor, str, bool]:
        name, windowed = requested(planner, collective, algorithm)
        descriptor = Descriptor(
            collective,
            dtype=str(array.dtype),
            shape=with_length(array.shape, axis, -1),
            root=root,
            axis=axis,
            algorithm=name,
        )
        return descriptor, name, windowed

    key = (collective, array.dtype, array.shape, root, axis, algorithm)
    return planner.known(key, make)


def requested(
    planner: Planner, collective: str, algorithm: str | None
) -> tuple[str, bool]:
    """Return the name that is asked for, and whether it wants a window.

    Which algorithm that is, where it is `auto`, depends on lengths that are not known.

    Raises:
        UnsupportedError: it cannot be had.
    """
    name = planner.asked(collective, algorithm)
    ranges = parse(name)
    sizes = [start for start, _ in ranges]
    if any(one in (AUTO, OPEN) for _, one in ranges):
        sizes.append(LARGEST)
    choices = [planner.choose(collective, size, None, name) for size in sizes]
    return name, any(planner.wants_window(collective, one) for one in choices)


def all_rows(planner: Planner, row: Array) -> Array:
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


def all_lengths(planner: Planner, length: int, out_length: int, axis: int) -> list[int]:
    """Exchange lengths; raise the same error everywhere if an `out` does not fit."""
    row = np.array([length, out_length], np.int64)
    rows = all_rows(planner, row)
    lengths: list[int] = rows[:, 0].tolist()
    for rank, given in enumerate(rows[:, 1].tolist()):
        if given not in (-1, sum(lengths)):
            raise InvalidArgumentError(
                f"rank {rank}: out has length {given} along axis {axis}; "
                f"wanted {sum(lengths)}, the sum of {lengths}"
            )
    return lengths


def common_out(
    planner: Planner, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Return the target, or raise the same error everywhere if an `out` does not fit.

    Here the shape that is wanted is known only after the ranks have talked.
    """
    error, target = "", None
    if out is None:
        target = planner.empty(shape, dtype)
    else:
        try:
            target = planner.check_out(out, shape, dtype)
        except (TypeError, ValueError) as own:
            error = str(own)
    errors = all_gather_errors(planner.group, error, planner.options.timeout_s)
    if errors:
        raise InvalidArgumentError(errors)
    assert target is not None
    return target


def room_for(
    planner: Planner, mine: Array, bounds: Bounds, whole: bool
) -> tuple[Array, Bounds]:
    """Return where a rank that is not the root works, and its blocks there.

    Either there is room for the whole array, or all blocks but its own are empty.
    """
    rank = planner.group.rank
    if whole:
        work = planner.empty(bounds[-1], mine.dtype)
        work[bounds[rank] : bounds[rank + 1]] = mine
        return work, bounds
    blocks = len(bounds) - 1
    return mine, (0,) * (rank + 1) + (mine.size,) * (blocks - rank)
