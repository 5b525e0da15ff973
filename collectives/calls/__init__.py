"""One function per collective: arguments in, a described and runnable `Call` out.

Preparing a call is purely local. What it finds wrong it raises, and the communicator
puts that into the descriptor instead of leaving the other ranks waiting. Nothing is
moved before all ranks have agreed on the descriptor; `out` is written only after.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.group import Group
from collectives.kernels import Array
from collectives.moving import Plan
from collectives.opening import open_window
from collectives.partition import bounds_of, even_bounds
from collectives.plans import Planner
from collectives.spreading import Ride

Open = Callable[[Group, float], None]


class Call(NamedTuple):
    """A call that can be agreed upon and then run."""

    descriptor: Descriptor
    run: Callable[[], Any]
    ride: Ride | None = None
    """What has been combined already when `run` is called."""
    windowed: bool = False
    """Whether the group should first have something that it lacks, such as a window."""
    opens: Open = open_window
    """What makes that, or finds out that there is none; called on all ranks."""


def moving(planner: Planner, plan: Plan, array: Array, out: Any) -> Call:
    """Return the call that runs a plan into a new array or into `out`."""
    target = planner.target(out, array.shape, plan.result_dtype)

    def run() -> Array:
        planner.move(plan, array, target)
        return target

    return Call(plan.descriptor, run, windowed=planner.windowed(plan))


def with_window(
    planner: Planner,
    prepare: Callable[..., Call],
    arguments: Sequence[Any],
    opens: Open = open_window,
) -> Call:
    """Open the group's window, and prepare once more what all have agreed on.

    Raises:
        UnsupportedError: there is none, and the caller wants no other way.
    """
    group, timeout_s = planner.group, planner.options.timeout_s
    opens(group, timeout_s)
    for plans in group.plans.values():
        plans.clear()
    call = prepare(planner, *arguments)
    if group.one_board:
        group.hand_over(timeout_s)  # what has been put into the mail
    return call


def check_axis(axis: int, ndim: int) -> int:
    """Return the axis counted from the front.

    Raises:
        InvalidArgumentError: there is no such axis.
    """
    try:
        number = operator.index(axis)
    except TypeError:
        number = ndim
    if not -ndim <= number < ndim:
        raise InvalidArgumentError(f"axis is {axis!r}; wanted one of the {ndim} axes")
    return number % ndim


def rows_first(array: Array, axis: int) -> Array:
    """Return the array with `axis` in front."""
    return array if axis == 0 else np.moveaxis(array, axis, 0)


def with_length(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    """Return a shape with another length along one axis."""
    return (*shape[:axis], length, *shape[axis + 1 :])


def split_lengths(length: int, ranks: int, splits: Any) -> list[int]:
    """Return how much of `length` each rank gets: `splits`, or as even as can be.

    Raises:
        InvalidArgumentError: `splits` is not one length for each rank, or their sum is
            not `length`.
    """
    if splits is None:
        return [high - low for low, high in pairwise(even_bounds(length, ranks))]
    try:
        lengths = [operator.index(split) for split in splits]
    except TypeError:
        raise InvalidArgumentError(
            f"splits is {splits!r}; wanted {ranks} lengths with the sum {length}"
        ) from None
    if len(lengths) != ranks or min(lengths) < 0 or sum(lengths) != length:
        raise InvalidArgumentError(
            f"splits is {lengths}; wanted {ranks} lengths with the sum {length}"
        )
    return lengths


def row_elements(shape: tuple[int, ...], axis: int) -> int:
    """Return the elements of one row: what a length of 1 along `axis` holds."""
    return prod(with_length(shape, axis, 1))


def row_bounds(lengths: list[int], elements: int) -> tuple[int, ...]:
    """Return bounds in elements of blocks given in rows."""
    return bounds_of([length * elements for length in lengths])
