"""What can be measured: one row per collective, and the conventions of nccl-tests.

A call reads an array `send` and leaves its result in an array `receive`. In place, both
are views of one buffer: the same view, or for all_gather this rank's part of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from collectives.communicator import Communicator

__all__ = ["CASES", "DTYPES", "IN_PLACE", "OUT_OF_PLACE", "Case", "Setup", "Size"]

Array = NDArray[Any]
Call = Callable[[], object]

# The algorithm name of the raw mpi4py call: what every other one is compared with.
BASELINE = "mpi"

OUT_OF_PLACE, IN_PLACE = "out_of_place", "in_place"

# nccl-tests rounds the part of each rank down to a multiple of this many bytes.
PART_BYTES = 16

# Names of dtypes that may be given -> NumPy's; the second group is nccl-tests' words.
DTYPES = {
    name: name
    for name in (
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
} | {"half": "float16", "float": "float32", "double": "float64"}

# MPI's names of our ops; MPI has no mean.
MPI_OPS = {
    "sum": "SUM",
    "min": "MIN",
    "max": "MAX",
    "prod": "PROD",
    "and": "BAND",
    "or": "BOR",
    "xor": "BXOR",
}


@dataclass(frozen=True)
class Size:
    """The size column, in bytes, and the count column of a row."""

    nbytes: int
    count: int


@dataclass(frozen=True)
class Setup:
    """Everything but the arrays that a call is made of."""

    comm: Communicator
    op: str
    root: int
    algorithm: str
    place: str


Runner = Callable[[Setup, Array, Array], Call]


@dataclass(frozen=True)
class Case:
    """One collective.

    `factor(ranks)` is busbw over algbw. `ours` binds our call and `raw` the MPI's own,
    per place; a place that is missing is printed as N/A. `by_parts`: the size is that
    of the whole array, and the count that of one rank's part of it.
    """

    name: str
    factor: Callable[[int], float]
    ours: dict[str, Runner]
    raw: dict[str, Runner]
    reduces: bool = False
    rooted: bool = False
    by_parts: bool = False
    sized: bool = True

    def size(self, asked: int, itemsize: int, ranks: int) -> Size:
        """Return the size that is measured when `asked` bytes were asked for."""
        if not self.sized:
            return Size(0, 0)
        if not self.by_parts:
            count = asked // itemsize
            return Size(count * itemsize, count)
        part = asked // ranks // PART_BYTES * PART_BYTES
        return Size(part * ranks, part // itemsize)

    def views(
        self, buffers: tuple[Array, Array], size: Size, place: str, rank: int
    ) -> tuple[Array, Array]:
        """Return `send` and `receive` of this rank, views of two buffers of one dtype.

        Each buffer must hold `size.nbytes`. In place, `send` and `receive` are the same
        object, as in `all_reduce(x, out=x)`, except where `send` is a part.
        """
        first, second = (buffer[: size.nbytes // buffer.itemsize] for buffer in buffers)
        receive = first if place == IN_PLACE else second
        if not self.by_parts:
            return first, receive
        start = rank * size.count if place == IN_PLACE else 0
        return first[start : start + size.count], receive

    def blocks(self, ranks: int, rank: int, root: int) -> list[tuple[int, ...]]:
        """Name, for each block of this rank's result, the ranks whose input is in it.

        No block at all where this rank has no result.
        """
        if not self.sized or (self.rooted and self.reduces and rank != root):
            return []
        if self.reduces:
            return [tuple(range(ranks))]
        if self.rooted:
            return [(root,)]
        return [(source,) for source in range(ranks)]


def _both(runner: Runner) -> dict[str, Runner]:
    return {OUT_OF_PLACE: runner, IN_PLACE: runner}


def _all_reduce(s: Setup, send: Array, receive: Array) -> Call:
    return partial(s.comm.all_reduce, send, s.op, out=receive, algorithm=s.algorithm)


def _reduce(s: Setup, send: Array, receive: Array) -> Call:
    out = receive if s.comm.rank == s.root else None
    return partial(s.comm.reduce, send, s.op, s.root, out=out, algorithm=s.algorithm)


def _broadcast(s: Setup, send: Array, receive: Array) -> Call:
    return partial(s.comm.broadcast, send, s.root, out=receive, algorithm=s.algorithm)


def _all_gather(s: Setup, send: Array, receive: Array) -> Call:
    return partial(s.comm.all_gather, send, out=receive, algorithm=s.algorithm)


def _barrier(s: Setup, send: Array, receive: Array) -> Call:
    return s.comm.barrier


def _mpi_op(s: Setup) -> Any:
    from mpi4py import MPI

    return getattr(MPI, MPI_OPS[s.op])


def _or_in_place(s: Setup, send: Array) -> Any:
    from mpi4py import MPI

    return MPI.IN_PLACE if s.place == IN_PLACE else send


def _raw_all_reduce(s: Setup, send: Array, receive: Array) -> Call:
    return partial(s.comm.mpi.Allreduce, _or_in_place(s, send), receive, _mpi_op(s))


def _raw_reduce(s: Setup, send: Array, receive: Array) -> Call:
    if s.comm.rank != s.root:
        return partial(s.comm.mpi.Reduce, send, None, _mpi_op(s), s.root)
    return partial(
        s.comm.mpi.Reduce, _or_in_place(s, send), receive, _mpi_op(s), s.root
    )


def _raw_broadcast(s: Setup, send: Array, receive: Array) -> Call:
    return partial(s.comm.mpi.Bcast, receive, s.root)


def _raw_all_gather(s: Setup, send: Array, receive: Array) -> Call:
    return partial(s.comm.mpi.Allgather, _or_in_place(s, send), receive)


def _raw_barrier(s: Setup, send: Array, receive: Array) -> Call:
    barrier: Call = s.comm.mpi.Barrier
    return barrier


CASES = {
    case.name: case
    for case in (
        Case(
            "all_reduce",
            lambda ranks: 2 * (ranks - 1) / ranks,
            ours=_both(_all_reduce),
            raw=_both(_raw_all_reduce),
            reduces=True,
        ),
        Case(
            "reduce",
            lambda ranks: 1.0,
            ours=_both(_reduce),
            raw=_both(_raw_reduce),
            reduces=True,
            rooted=True,
        ),
        Case(
            "broadcast",
            lambda ranks: 1.0,
            ours=_both(_broadcast),
            raw={IN_PLACE: _raw_broadcast},
            rooted=True,
        ),
        Case(
            "all_gather",
            lambda ranks: (ranks - 1) / ranks,
            ours=_both(_all_gather),
            raw=_both(_raw_all_gather),
            by_parts=True,
        ),
        Case(
            "barrier",
            lambda ranks: 0.0,
            ours={IN_PLACE: _barrier},
            raw={IN_PLACE: _raw_barrier},
            sized=False,
        ),
    )
}
