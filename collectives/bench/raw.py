"""The raw mpi4py calls, bound to their arrays: the baseline, with nothing of ours."""

from __future__ import annotations

from functools import partial
from typing import Any

from collectives.bench.case import IN_PLACE, Array, Call, Setup
from collectives.bench.shapes import tensors

__all__ = [
    "MPI_OPS",
    "UNKNOWN_DTYPES",
    "all_gather",
    "all_reduce",
    "all_reduce_many",
    "all_to_all",
    "barrier",
    "broadcast",
    "broadcast_many",
    "exchange",
    "exclusive_scan",
    "gather",
    "in_place",
    "op_of",
    "ping_pong",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
]

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

# What mpi4py has no type for.
UNKNOWN_DTYPES = ("bfloat16",)


def op_of(s: Setup) -> Any:
    """Return MPI's op."""
    from mpi4py import MPI

    return getattr(MPI, MPI_OPS[s.op])


def in_place() -> Any:
    """Return what MPI wants in the place of an input."""
    from mpi4py import MPI

    return MPI.IN_PLACE


def _or_in_place(s: Setup, array: Array) -> Any:
    return in_place() if s.place == IN_PLACE else array


def all_reduce(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Allreduce`."""
    return partial(s.comm.mpi.Allreduce, _or_in_place(s, send), receive, op_of(s))


def all_reduce_many(s: Setup, send: Array, receive: Array) -> Call:
    """Bind one `Allreduce` per array, one after the other."""
    pairs = list(zip(tensors(send, s.shapes), tensors(receive, s.shapes), strict=True))
    pairs = [(_or_in_place(s, x), y) for x, y in pairs]
    all_reduce, op = s.comm.mpi.Allreduce, op_of(s)

    def call() -> None:
        for x, y in pairs:
            all_reduce(x, y, op)

    return call


def reduce(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Reduce`."""
    if s.comm.rank != s.root:
        return partial(s.comm.mpi.Reduce, send, None, op_of(s), s.root)
    return partial(s.comm.mpi.Reduce, _or_in_place(s, send), receive, op_of(s), s.root)


def reduce_scatter(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Reduce_scatter_block`; in place it reads all of what it writes into."""
    into = send if s.place == IN_PLACE else receive
    source = _or_in_place(s, send)
    return partial(s.comm.mpi.Reduce_scatter_block, source, into, op_of(s))


def scan(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Scan`."""
    return partial(s.comm.mpi.Scan, _or_in_place(s, send), receive, op_of(s))


def exclusive_scan(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Exscan`, which leaves rank 0 without a result."""
    return partial(s.comm.mpi.Exscan, _or_in_place(s, send), receive, op_of(s))


def broadcast(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Bcast`, which is always in place."""
    return partial(s.comm.mpi.Bcast, receive, s.root)


def broadcast_many(s: Setup, send: Array, receive: Array) -> Call:
    """Bind one `Bcast` per array, one after the other."""
    arrays, broadcast, root = tensors(receive, s.shapes), s.comm.mpi.Bcast, s.root

    def call() -> None:
        for x in arrays:
            broadcast(x, root)

    return call


def all_gather(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Allgather`."""
    return partial(s.comm.mpi.Allgather, _or_in_place(s, send), receive)


def gather(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Gather`."""
    if s.comm.rank != s.root:
        return partial(s.comm.mpi.Gather, send, None, s.root)
    return partial(s.comm.mpi.Gather, _or_in_place(s, send), receive, s.root)


def scatter(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Scatter`."""
    if s.comm.rank != s.root:
        return partial(s.comm.mpi.Scatter, None, receive, s.root)
    return partial(s.comm.mpi.Scatter, send, _or_in_place(s, receive), s.root)


def all_to_all(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Alltoall`."""
    return partial(s.comm.mpi.Alltoall, _or_in_place(s, send), receive)


def barrier(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Barrier`."""
    return partial(s.comm.mpi.Barrier)


def exchange(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Sendrecv` around a ring: to the right, from the left."""
    left, right = ((s.comm.rank + step) % s.comm.size for step in (-1, 1))
    return partial(s.comm.mpi.Sendrecv, send, dest=right, recvbuf=receive, source=left)


def ping_pong(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `Send` and `Recv`: from rank 0 to rank 1, and back."""
    mpi, peer = s.comm.mpi, 1 - s.comm.rank

    def first() -> None:
        mpi.Send(send, peer)
        mpi.Recv(receive, peer)

    def second() -> None:
        mpi.Recv(receive, peer)
        mpi.Send(send, peer)

    return (first, second, lambda: None)[min(s.comm.rank, 2)]
