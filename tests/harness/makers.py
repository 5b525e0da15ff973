"""How a case of each collective is made: the inputs, the call, and what must come back.

A new collective is a function here and a row in `COLLECTIVES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from collectives import Communicator
from harness.arrays import dtype_of, garbage, values
from harness.oracle import reduced

Array = Any

SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "0-d": lambda size: (),
    "empty": lambda size: (0,),
    "empty, 3-d": lambda size: (2, 0, 3),
    "one": lambda size: (1,),
    "fewer than ranks": lambda size: (size - 1, 1),
    "one segment": lambda size: (5, 8),
    "many segments": lambda size: (4, 9, 50),
}


@dataclass(frozen=True)
class Case:
    """One call."""

    collective: str
    algorithm: str
    dtype: str
    op: str
    layout: str
    shape: str
    place: str
    turn: int = 0
    """Picks root, axis or lengths where the collective has such."""

    def __str__(self) -> str:
        """Return all of it in one line."""
        return " / ".join(map(str, vars(self).values()))


class Made(NamedTuple):
    """A case on one rank."""

    x: Array
    call: Callable[..., Any]
    """`call(x, out=…)`."""
    expected: Array | None


class Collective(NamedTuple):
    """How cases of one collective are made."""

    make: Callable[[Communicator, Case], Made]
    reduces: bool
    turns: Callable[[int], int]
    """How many different turns there are, for so many ranks."""
    in_place: bool = True
    same: bool = True
    """Whether all ranks that have a result have the same."""
    without: tuple[str, ...] = ()
    """Ops that it does not know."""


def _all_reduce(comm: Communicator, case: Case) -> Made:
    parts = _contributions(comm, case)

    def call(x: Array, out: Array | None) -> Array:
        return comm.all_reduce(x, case.op, out=out, algorithm=case.algorithm)

    return Made(parts[comm.rank], call, reduced(case.dtype, case.op, parts))


def _reduce(comm: Communicator, case: Case) -> Made:
    parts, root = _contributions(comm, case), case.turn % comm.size
    expected = reduced(case.dtype, case.op, parts) if comm.rank == root else None

    def call(x: Array, out: Array | None) -> Array:
        return comm.reduce(x, case.op, root, out=out, algorithm=case.algorithm)

    return Made(parts[comm.rank], call, expected)


def _broadcast(comm: Communicator, case: Case) -> Made:
    parts, root = _contributions(comm, case), case.turn % comm.size
    expected = parts[root]

    def call(x: Array, out: Array | None) -> Array:
        return comm.broadcast(x, root, out=out, algorithm=case.algorithm)

    x = expected if comm.rank == root else garbage(expected)
    return Made(x, call, expected)


def _all_gather(comm: Communicator, case: Case) -> Made:
    """Gather along each axis by turns, with equal lengths and others."""
    shape = SHAPES[case.shape](comm.size)
    axis = case.turn // 2 % max(len(shape), 1)
    if case.turn % 2 and shape:
        shapes = [
            (*shape[:axis], shape[axis] * (rank % 3), *shape[axis + 1 :])
            for rank in range(comm.size)
        ]
    else:
        shapes = [shape] * comm.size
    parts = [values(case.dtype, "sum", rank, one) for rank, one in enumerate(shapes)]

    def call(x: Array, out: Array | None) -> Array:
        return comm.all_gather(x, axis, out=out, algorithm=case.algorithm)

    whole = [np.atleast_1d(part) for part in parts]
    return Made(parts[comm.rank], call, np.concatenate(whole, axis))


def _gather(comm: Communicator, case: Case) -> Made:
    """Gather on each root by turns, with equal lengths and others."""
    made, root = _all_gather(comm, case), case.turn % comm.size
    axis = case.turn // 2 % max(len(SHAPES[case.shape](comm.size)), 1)

    def call(x: Array, out: Array | None) -> Array:
        return comm.gather(x, root, axis, out=out, algorithm=case.algorithm)

    return Made(made.x, call, made.expected if comm.rank == root else None)


def _scatter(comm: Communicator, case: Case) -> Made:
    """Scatter from each root by turns, evenly and with splits."""
    parts, root = _contributions(comm, case), case.turn % comm.size
    whole = np.atleast_1d(parts[root])
    axis, splits = _cut(case, whole.shape, comm.size)

    def call(x: Array, out: Array | None) -> Array:
        mine = np.atleast_1d(x) if comm.rank == root else None
        given = splits if comm.rank == root else None
        return comm.scatter(mine, root, axis, given, out=out, algorithm=case.algorithm)

    return Made(parts[root], call, _pieces(whole, axis, splits, comm.size)[comm.rank])


def _reduce_scatter(comm: Communicator, case: Case) -> Made:
    """Cut along each axis by turns, evenly and with splits."""
    parts = _contributions(comm, case)
    whole = np.atleast_1d(reduced(case.dtype, case.op, parts))
    axis, splits = _cut(case, whole.shape, comm.size)

    def call(x: Array, out: Array | None) -> Array:
        return comm.reduce_scatter(
            np.atleast_1d(x), case.op, axis, splits, out=out, algorithm=case.algorithm
        )

    expected = _pieces(whole, axis, splits, comm.size)[comm.rank]
    return Made(parts[comm.rank], call, expected)


def _scan(comm: Communicator, case: Case) -> Made:
    parts = _contributions(comm, case)

    def call(x: Array, out: Array | None) -> Array:
        return comm.scan(x, case.op, out=out, algorithm=case.algorithm)

    expected = reduced(case.dtype, case.op, parts[: comm.rank + 1])
    return Made(parts[comm.rank], call, expected)


def _exclusive_scan(comm: Communicator, case: Case) -> Made:
    """Compare every rank but the first, whose result is the op's identity."""
    parts = _contributions(comm, case)

    def call(x: Array, out: Array | None) -> Array:
        return comm.scan(x, case.op, True, out=out, algorithm=case.algorithm)

    if comm.rank == 0:
        expected = np.full_like(parts[0], nothing(case.dtype, case.op))
    else:
        expected = reduced(case.dtype, case.op, parts[: comm.rank])
    return Made(parts[comm.rank], call, expected)


def _all_to_all(comm: Communicator, case: Case) -> Made:
    """Cut along each axis by turns, evenly and with splits."""
    parts = [np.atleast_1d(part) for part in _contributions(comm, case)]
    axis, splits = _cut(case, parts[0].shape, comm.size)

    def call(x: Array, out: Array | None) -> Array:
        return comm.all_to_all(
            np.atleast_1d(x), axis, splits, out=out, algorithm=case.algorithm
        )

    blocks = [_pieces(part, axis, splits, comm.size)[comm.rank] for part in parts]
    return Made(
        _contributions(comm, case)[comm.rank], call, np.concatenate(blocks, axis)
    )


def _cut(case: Case, shape: tuple[int, ...], size: int) -> tuple[int, list[int] | None]:
    """Return an axis, and every other time splits that put most on the last rank."""
    axis = case.turn // 2 % len(shape)
    if case.turn % 2 == 0:
        return axis, None
    few = [min(1, shape[axis])] + [0] * (size - 1)
    few[-1] += shape[axis] - sum(few)
    return axis, few


def _pieces(
    whole: Array, axis: int, splits: list[int] | None, size: int
) -> list[Array]:
    """Cut an array among the ranks."""
    if splits is None:
        return np.array_split(whole, size, axis)
    return np.split(whole, np.cumsum(splits)[:-1], axis)


def nothing(name: str, op: str) -> Any:
    """Return the identity of an op, worked out by hand."""
    dtype = dtype_of(name)
    if op in ("sum", "or", "xor"):
        return 0
    if op == "prod":
        return 1
    if op == "and":
        return ~np.zeros((), dtype)
    if np.issubdtype(dtype, np.bool_):
        return op == "min"
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return limits.max if op == "min" else limits.min
    if name == "float8_e4m3fn":  # it has no infinity
        return 448 if op == "min" else -448
    return np.inf if op == "min" else -np.inf


def _contributions(comm: Communicator, case: Case) -> list[Array]:
    shape = SHAPES[case.shape](comm.size)
    op = case.op or "sum"
    return [values(case.dtype, op, rank, shape) for rank in range(comm.size)]


COLLECTIVES: dict[str, Collective] = {
    "all_reduce": Collective(_all_reduce, reduces=True, turns=lambda size: 1),
    "reduce": Collective(_reduce, reduces=True, turns=lambda size: size),
    "broadcast": Collective(_broadcast, reduces=False, turns=lambda size: size),
    "all_gather": Collective(
        _all_gather, reduces=False, turns=lambda size: 6, in_place=False
    ),
    "gather": Collective(
        _gather, reduces=False, turns=lambda size: 6 * size, in_place=False
    ),
    "scatter": Collective(
        _scatter, False, turns=lambda size: 6 * size, in_place=False, same=False
    ),
    "reduce_scatter": Collective(
        _reduce_scatter, True, turns=lambda size: 6, in_place=False, same=False
    ),
    "scan": Collective(
        _scan, reduces=True, turns=lambda size: 1, same=False, without=("mean",)
    ),
    "exclusive_scan": Collective(
        _exclusive_scan, True, turns=lambda size: 1, same=False, without=("mean",)
    ),
    "all_to_all": Collective(
        _all_to_all, False, turns=lambda size: 6, in_place=False, same=False
    ),
}
