"""Calls that combine: all_reduce, reduce, reduce_scatter, scan."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from collectives.algorithms import AUTO
from collectives.algorithms import SHARED as SHARED_ALGORITHM
from collectives.algorithms.shared_sums import common_all_reduce
from collectives.board import TARGET
from collectives.buffers import flat_source
from collectives.calls import (
    Call,
    check_axis,
    moving,
    row_bounds,
    row_elements,
    rows_first,
    split_lengths,
    with_length,
)
from collectives.errors import UnsupportedError
from collectives.kernels import Array, Kernel, Op, check_op, identity
from collectives.moving import Plan
from collectives.narrow import narrow_into
from collectives.plans import Planner
from collectives.registered import SHARED, SharedResult, place_of
from collectives.spreading import Ride, spreading_of


def all_reduce(
    planner: Planner, x: Any, op: Op, out: Any, algorithm: str | None
) -> Call:
    """Combine over all ranks; everybody gets the result."""
    array = planner.array(x)
    if out is SHARED:
        return _sharing(planner, array, op, algorithm)
    return _reducing(planner, array, op, out, algorithm)


def _reducing(
    planner: Planner, array: Array, op: Op, out: Any, algorithm: str | None
) -> Call:
    """Return the call whose result each rank has for itself."""
    plan = planner.plan("all_reduce", array, op, -1, algorithm)
    if not planner.group.joining:
        if plan.mail is not None:
            return _mailing(planner, plan, array, out)
        if plan.start is not None:
            return _starting(planner, plan, array, out)
        if plan.ride is not None and not planner.windowed(plan):
            return _riding(planner, plan, plan.ride, array, out)
    return moving(planner, plan, array, out)


def _mailing(planner: Planner, plan: Plan, array: Array, out: Any) -> Call:
    """Return the call whose data are there by the time the ranks have agreed."""
    group, mail = planner.group, plan.mail
    assert mail is not None, "this plan goes another way"
    target = planner.target(out, array.shape, plan.result_dtype)
    parts = mail[group.sequence & 1]
    parts[group.rank][...] = array

    def run() -> Array:
        total = target if plan.work_dtype == target.dtype else np.empty_like(parts[0])
        cast(Kernel, plan.kernel).add_up(parts, total, group.divisor)
        if total is not target:
            narrow_into(total.reshape(-1), target)
        return target

    return Call(plan.descriptor, run)


def _starting(planner: Planner, plan: Plan, array: Array, out: Any) -> Call:
    """Return the call that has begun by the time the ranks have agreed."""
    target = planner.target(out, array.shape, plan.result_dtype)
    rest = planner.start(plan, array, target)

    def run() -> Array:
        rest()
        return target

    return Call(plan.descriptor, run)


def _sharing(planner: Planner, array: Array, op: Op, algorithm: str | None) -> Call:
    """Return the call whose result is one copy for the ranks of a host."""
    group = planner.group
    if group.joining:
        raise UnsupportedError("out=SHARED inside a join")
    if group.size == 1 or not group.one_board or group.no_window:
        call = _reducing(planner, array, op, None, algorithm)
        return call._replace(run=lambda: SharedResult(call.run(), None))
    if algorithm not in (None, AUTO, SHARED_ALGORITHM):
        raise UnsupportedError(f"out=SHARED by {algorithm}; it goes by shared")
    plan = planner.plan_common(array, op)
    if cast(Kernel, plan.kernel).in_order:
        raise UnsupportedError("out=SHARED with a function as op")
    arena = group.arena
    if arena is not None and not array.flags.writeable and place_of(arena, array) >= 0:
        array = array.copy()  # it may be a result whose place the new one takes

    def run() -> SharedResult:
        board, window, results = group.board, group.window, group.results
        assert board is not None and window is not None and results is not None
        source, options = flat_source(array, plan.work_dtype), planner.options
        if group.rank == 0:
            poison = options.check == "full"
            board.write(TARGET, results.place(max(1, source.nbytes), poison))
        group.hand_over(options.timeout_s)
        place = board.read_first(TARGET)
        results.made += 1
        if place < 0:
            raise UnsupportedError(f"no memory for a SharedResult of {source.nbytes} B")
        common = window.view(place, plan.work_dtype, source.size)
        common_all_reduce(planner.task(plan.bounds, source, common, plan.kernel))
        return SharedResult(common.reshape(array.shape), results)

    return Call(plan.descriptor, run, windowed=planner.windowed(plan))


def _riding(planner: Planner, plan: Plan, ride: Ride, array: Array, out: Any) -> Call:
    """Return the call whose data are combined while the ranks agree."""
    target = planner.target(out, array.shape, plan.result_dtype)
    turn = spreading_of(planner.group).turn
    ride.mine[turn][...] = array

    def run() -> Array:
        total = ride.total[turn].copy()  # all ranks of a host read it
        ride.kernel.finish(total, planner.group.divisor)
        narrow_into(total.reshape(-1), target)
        return target

    return Call(plan.descriptor, run, ride)


def reduce(
    planner: Planner, x: Any, op: Op, root: int, out: Any, algorithm: str | None
) -> Call:
    """Combine over all ranks; the root gets the result, the others None."""
    root = planner.rank(root)
    array = planner.array(x)
    plan = planner.plan("reduce", array, op, root, algorithm)
    if planner.group.rank == root:
        return moving(planner, plan, array, out)

    def give() -> None:
        source = flat_source(array, plan.work_dtype)
        planner.move_flat(plan, source, np.empty_like(source))

    return Call(plan.descriptor, give, windowed=planner.windowed(plan))


def scan(
    planner: Planner, x: Any, op: Op, exclusive: bool, out: Any, algorithm: str | None
) -> Call:
    """Combine over this rank and those before it, or only over those before it."""
    array = planner.array(x)
    if check_op(op) == "mean":
        raise UnsupportedError("scan by mean; take the sum, and divide as you mean it")
    name = "exclusive_scan" if exclusive else "scan"
    plan = planner.plan(name, array, op, -1, algorithm)
    if not exclusive:
        return moving(planner, plan, array, out)
    assert plan.kernel is not None
    # On all ranks, though only rank 0 needs it: all must refuse where there is none.
    first = identity(plan.kernel)
    target = planner.target(out, array.shape, plan.result_dtype)

    def run() -> Array:
        source = flat_source(array, plan.work_dtype)
        work = np.empty_like(source)
        if planner.group.rank == 0:
            work[...] = first
        planner.move_flat(plan, source, work)
        target[...] = work.reshape(target.shape)
        return target

    return Call(plan.descriptor, run, windowed=planner.windowed(plan))


def reduce_scatter(
    planner: Planner,
    x: Any,
    op: Op,
    axis: int,
    splits: Any,
    out: Any,
    algorithm: str | None,
) -> Call:
    """Combine over all ranks; each rank gets its block of rows along `axis`."""
    array, rank = planner.array(x), planner.group.rank
    axis = check_axis(axis, array.ndim)
    lengths = split_lengths(array.shape[axis], planner.group.size, splits)
    bounds = row_bounds(lengths, row_elements(array.shape, axis))
    plan = planner.plan_scatter(array, op, axis, bounds, algorithm)
    shape = with_length(array.shape, axis, lengths[rank])
    target = planner.target(out, shape, plan.result_dtype)

    def run() -> Array:
        source = flat_source(rows_first(array, axis), plan.work_dtype)
        work = planner.empty(source.size, plan.work_dtype)
        planner.move_flat(plan, source, work)
        rows = rows_first(target, axis)
        rows[...] = work[bounds[rank] : bounds[rank + 1]].reshape(rows.shape)
        return target

    return Call(plan.descriptor, run, windowed=planner.windowed(plan))
