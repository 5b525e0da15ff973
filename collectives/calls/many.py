"""Calls on lists of arrays: small ones travel together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from collectives import packing
from collectives.buffers import as_array, extent, flat_source
from collectives.calls import Call, target_for
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.kernels import Array, Op, check_op, kernel_for
from collectives.plans import Plan, Planner
from collectives.selection import wanted

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
    given, outs = _lists(arrays, out, bytes_per_pack)
    kernels = [kernel_for(op, array.dtype) for array in given]
    targets = [
        target_for(its_out, array.shape, kernel.result_dtype)
        for array, its_out, kernel in zip(given, outs, kernels, strict=True)
    ]
    given = given if out is None else _apart(given, targets)
    packs = packing.make_packs(
        [kernel.work_dtype for kernel in kernels],
        [array.size for array in given],
        bytes_per_pack,
    )
    moves = [
        (pack, planner.plan_pack(kernels[pack.members[0]], _like(pack), algorithm))
        for pack in packs
    ]
    name = wanted("all_reduce", planner.options, algorithm)
    descriptor = _describe("all_reduce_many", given, -1, bytes_per_pack, moves, name)
    return Call(
        descriptor,
        lambda: _run(planner, moves, given, targets),
        windowed=any(planner.windowed(plan) for _, plan in moves),
    )


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
    given, outs = _lists(arrays, out, bytes_per_pack)
    targets = [
        target_for(its_out, array.shape, array.dtype)
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
    name = wanted("broadcast", planner.options, algorithm)
    descriptor = _describe("broadcast_many", given, root, bytes_per_pack, moves, name)
    return Call(
        descriptor,
        lambda: _run(planner, moves, given, targets),
        windowed=any(planner.windowed(plan) for _, plan in moves),
    )


def _lists(
    arrays: Sequence[Any], out: Sequence[Any] | None, bytes_per_pack: int
) -> tuple[list[Array], list[Any]]:
    """Return the inputs as arrays, and a target or None for each."""
    if bytes_per_pack < 0:
        raise InvalidArgumentError(
            f"bytes_per_pack is {bytes_per_pack}; wanted 0 (automatic) or more"
        )
    given = [as_array(x) for x in arrays]
    outs = [None] * len(given) if out is None else list(out)
    if len(outs) != len(given):
        raise InvalidArgumentError(
            f"out has {len(outs)} arrays; wanted {len(given)}, one for each input"
        )
    return given, outs


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
            continue
        buffer = np.empty(pack.elements, plan.work_dtype)
        packing.pack_into(buffer, [flat_source(m, plan.work_dtype) for m in members])
        planner.move_flat(plan, buffer, buffer)
        parts = packing.unpack(buffer, [member.size for member in members])
        for goal, part in zip(goals, parts, strict=True):
            goal[...] = part.reshape(goal.shape)
    return targets


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
