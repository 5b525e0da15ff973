"""Calls on lists of arrays: small ones travel together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from collectives import packing
from collectives.algorithms import Flow
from collectives.buffers import (
    extent,
    flat_source,
    flat_work,
    source_beside,
)
from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.gradient_packs import Views
from collectives.kernels import Array, Kernel, Op, check_op, kernel_for
from collectives.moving import Plan
from collectives.narrow import narrow_into
from collectives.plans import Planner
from collectives.running import race

WITHOUT_LIMIT = 1 << 62  # bytes in a pack that goes through a window as it is

Move = tuple[packing.Pack, Plan]


def all_reduce_many(
    planner: Planner,
    arrays: Sequence[Any],
    op: Op,
    out: Sequence[Any] | None,
    bytes_per_pack: int,
    algorithm: str | None,
) -> Call:
    """Combine each array of a list over all ranks."""
    check_op(op)
    if out is arrays and isinstance(arrays, Views):
        flats = arrays.flats
        whole = all_reduce_many(planner, flats, op, flats, bytes_per_pack, algorithm)
        return whole._replace(run=lambda: (whole.run(), arrays)[1])
    given, outs = _lists(planner, arrays, out, bytes_per_pack)
    key = (tuple((x.dtype, x.shape) for x in given), op, bytes_per_pack, algorithm)
    known = planner.known(key, lambda: _plan(planner, given, *key[1:]))
    targets = [
        planner.target(its_out, array.shape, kernel.result_dtype)
        for array, its_out, kernel in zip(given, outs, known.kernels, strict=True)
    ]
    given = given if out is None else _apart(given, targets)
    ways = list(known.courses.values())

    def run() -> list[Array]:
        if len(ways) == 1:
            return _run(planner, ways[0], given, targets)
        group, nbytes = planner.group, sum(x.nbytes for x in given)
        heat = group.race.heat("all_reduce_many", nbytes, tuple(known.courses))
        return race(
            group,
            heat,
            planner.options.timeout_s,
            lambda number: _run(planner, ways[number], given, targets),
        )

    windowed = any(planner.windowed(plan) for _, plan in ways[0])
    return Call(known.descriptor, run, windowed=windowed)


class _Known(NamedTuple):
    """What follows from the dtypes and shapes of a list."""

    descriptor: Descriptor
    kernels: list[Kernel]
    courses: dict[str, list[Move]]
    """The ways to do it; where there are two, they race."""


def _plan(
    planner: Planner,
    given: list[Array],
    op: Op,
    bytes_per_pack: int,
    algorithm: str | None,
) -> _Known:
    kernels, group = [kernel_for(op, array.dtype) for array in given], planner.group
    # On one host whatever carries the smallest carries all that flow.
    nbytes = 0 if group.one_board else sum(array.nbytes for array in given)
    name, flowing = "", None
    if given and group.size > 1:
        name = planner.choose("all_reduce", nbytes, kernels[0], algorithm).algorithm
        row = planner.row("all_reduce", name)
        flowing = row if row.flow is not None else None
    dtypes = [
        array.dtype
        if flowing and flowing.sums_stay and kernel.kind == "e"
        else kernel.work_dtype
        for array, kernel in zip(given, kernels, strict=True)
    ]

    def course(limit: int) -> list[Move]:
        sizes = [array.size for array in given]
        return [
            (
                pack,
                planner.plan_pack(
                    kernels[pack.members[0]],
                    _like(pack),
                    name if flowing and len(pack.members) > 1 else algorithm,
                ),
            )
            for pack in packing.make_packs(dtypes, sizes, limit, endless=bool(flowing))
        ]

    courses = {"apart": course(bytes_per_pack)}
    if flowing and not bytes_per_pack:
        together = course(WITHOUT_LIMIT)
        if planner.on_device or not group.one_board:
            courses = {"together": together}  # what flows keeps the network busy
        elif together != courses["apart"]:
            courses = {"together": together, **courses}
    moves = next(iter(courses.values()))
    told = planner.asked("all_reduce", algorithm)
    descriptor = _describe("all_reduce_many", given, -1, bytes_per_pack, moves, told)
    return _Known(descriptor, kernels, courses)


def broadcast_many(
    planner: Planner,
    arrays: Sequence[Any],
    root: int,
    out: Sequence[Any] | None,
    bytes_per_pack: int,
    algorithm: str | None,
) -> Call:
    """Give everybody the root's list of arrays."""
    root = planner.rank(root)
    given, outs = _lists(planner, arrays, out, bytes_per_pack)
    targets = [
        planner.target(its_out, array.shape, array.dtype)
        for array, its_out in zip(given, outs, strict=True)
    ]
    given = given if out is None else _apart(given, targets)
    packs = packing.make_packs(
        [array.dtype for array in given], [a.size for a in given], bytes_per_pack
    )
    moves = [
        (pack, planner.plan("broadcast", _like(pack), None, root, algorithm))
        for pack in packs
    ]
    name = planner.asked("broadcast", algorithm)
    descriptor = _describe("broadcast_many", given, root, bytes_per_pack, moves, name)
    return Call(
        descriptor,
        lambda: _run(planner, moves, given, targets),
        windowed=any(planner.windowed(plan) for _, plan in moves),
    )


def _lists(
    planner: Planner,
    arrays: Sequence[Any],
    out: Sequence[Any] | None,
    bytes_per_pack: int,
) -> tuple[list[Array], list[Any]]:
    """Return the inputs as arrays, and a target or None for each."""
    if not isinstance(bytes_per_pack, (int, np.integer)) or bytes_per_pack < 0:
        raise InvalidArgumentError(
            f"bytes_per_pack is {bytes_per_pack!r}; wanted 0 (automatic) or more"
        )
    given = [planner.array(x) for x in _list_of("arrays", arrays)]
    outs = [None] * len(given) if out is None else _list_of("out", out)
    if len(outs) != len(given):
        raise InvalidArgumentError(
            f"out has {len(outs)} arrays; wanted {len(given)}, one for each input"
        )
    return given, outs


def _list_of(name: str, value: Any) -> list[Any]:
    try:
        return list(value)
    except TypeError:
        raise InvalidArgumentError(
            f"{name} is a {type(value).__name__}; wanted a list of arrays"
        ) from None


def _like(pack: packing.Pack) -> Array:
    """Return an array of the pack's dtype and size, without its memory."""
    return np.broadcast_to(np.empty((), pack.dtype), (pack.elements,))


def _describe(
    collective: str,
    given: list[Array],
    root: int,
    bytes_per_pack: int,
    moves: list[Move],
    algorithm: str,
) -> Descriptor:
    return Descriptor(
        collective,
        dtype="list",
        op=moves[0][1].descriptor.op if moves else "",
        shape=tuple((str(array.dtype), array.shape) for array in given),
        root=root,
        packs=bytes_per_pack,
        algorithm=algorithm,
    )


def _run(
    planner: Planner, moves: list[Move], given: list[Array], targets: list[Array]
) -> list[Array]:
    for pack, plan in moves:
        members = [given[position] for position in pack.members]
        goals = [targets[position] for position in pack.members]
        if len(members) == 1:
            planner.move(plan, members[0], goals[0])
        elif plan.flow is not None:
            _flow(planner, plan, plan.flow, members, goals)
        else:
            _pack(planner, plan, members, goals)
    return targets


def _pack(
    planner: Planner, plan: Plan, members: list[Array], goals: list[Array]
) -> None:
    """Copy arrays into a buffer, move it as one, and copy the results out of it."""
    buffer = planner.empty(sum(member.size for member in members), plan.work_dtype)
    packing.pack_into(buffer, [flat_source(m, plan.work_dtype) for m in members])
    planner.move_flat(plan, buffer, buffer)
    parts = packing.unpack(buffer, [member.size for member in members])
    for goal, part in zip(goals, parts, strict=True):
        goal[...] = part.reshape(goal.shape)


def _flow(
    planner: Planner,
    plan: Plan,
    flow: Flow,
    members: list[Array],
    goals: list[Array],
) -> None:
    """Let arrays flow one behind the other, without a buffer."""
    dtype = plan.work_dtype
    works = [flat_work(goal, dtype) for goal in goals]
    sources = [
        source_beside(member, goal, work, direct)
        for member, goal, (work, direct) in zip(members, goals, works, strict=True)
    ]
    task = planner.task(plan.bounds, sources[0], works[0][0], plan.kernel)
    flow(task, sources, [work for work, _ in works])
    planner.check(plan)
    for goal, (work, direct) in zip(goals, works, strict=True):
        if not direct:
            narrow_into(work, goal)


def _apart(given: list[Array], targets: list[Array]) -> list[Array]:
    """Return the inputs, copied where another one's target would overwrite them."""
    if all(x is target for x, target in zip(given, targets, strict=True)):
        return given
    extents = sorted((*extent(target), place) for place, target in enumerate(targets))
    starts = [start for start, _, _ in extents]
    apart = []
    for place, x in enumerate(given):
        low, high = extent(x)
        others = extents[: bisect_left(starts, high)]
        hit = any(end > low and owner != place for _, end, owner in others)
        apart.append(x.copy() if hit else x)
    return apart
