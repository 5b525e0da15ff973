"""Our calls, bound to their arrays."""

from __future__ import annotations

from functools import partial

from collectives.bench.case import Array, Call, Setup
from collectives.bench.shapes import tensors

__all__ = [
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
    "ping_pong",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
]


def all_reduce(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `all_reduce`."""
    return partial(s.comm.all_reduce, send, s.op, out=receive, algorithm=s.algorithm)


def all_reduce_many(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `all_reduce_many` to arrays of the shapes that are wanted."""
    arrays = tensors(send, s.shapes)
    out = arrays if send is receive else tensors(receive, s.shapes)
    return partial(s.comm.all_reduce_many, arrays, s.op, out=out, algorithm=s.algorithm)


def reduce(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `reduce`."""
    out = receive if s.comm.rank == s.root else None
    return partial(s.comm.reduce, send, s.op, s.root, out=out, algorithm=s.algorithm)


def reduce_scatter(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `reduce_scatter`."""
    return partial(
        s.comm.reduce_scatter, send, s.op, out=receive, algorithm=s.algorithm
    )


def scan(s: Setup, send: Array, receive: Array) -> Call:
    """Bind the inclusive `scan`."""
    return partial(s.comm.scan, send, s.op, out=receive, algorithm=s.algorithm)


def exclusive_scan(s: Setup, send: Array, receive: Array) -> Call:
    """Bind the exclusive `scan`."""
    return partial(
        s.comm.scan, send, s.op, exclusive=True, out=receive, algorithm=s.algorithm
    )


def broadcast(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `broadcast`."""
    return partial(s.comm.broadcast, send, s.root, out=receive, algorithm=s.algorithm)


def broadcast_many(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `broadcast_many` to arrays of the shapes that are wanted."""
    arrays = tensors(send, s.shapes)
    out = arrays if send is receive else tensors(receive, s.shapes)
    return partial(
        s.comm.broadcast_many, arrays, s.root, out=out, algorithm=s.algorithm
    )


def all_gather(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `all_gather`."""
    return partial(s.comm.all_gather, send, out=receive, algorithm=s.algorithm)


def gather(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `gather`."""
    out = receive if s.comm.rank == s.root else None
    return partial(s.comm.gather, send, s.root, out=out, algorithm=s.algorithm)


def scatter(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `scatter`."""
    x = send if s.comm.rank == s.root else None
    return partial(s.comm.scatter, x, s.root, out=receive, algorithm=s.algorithm)


def all_to_all(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `all_to_all`."""
    return partial(s.comm.all_to_all, send, out=receive, algorithm=s.algorithm)


def barrier(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `barrier`."""
    return partial(s.comm.barrier)


def exchange(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `exchange` around a ring: to the right, from the left."""
    left, right = ((s.comm.rank + step) % s.comm.size for step in (-1, 1))
    pairs = [(right, send, None), (left, None, receive)]
    return partial(s.comm.exchange, pairs)


def ping_pong(s: Setup, send: Array, receive: Array) -> Call:
    """Bind `send` and `recv`: from rank 0 to rank 1, and back."""
    comm, peer = s.comm, 1 - s.comm.rank

    def first() -> None:
        comm.send(send, peer)
        comm.recv(receive, peer)

    def second() -> None:
        comm.recv(receive, peer)
        comm.send(send, peer)

    return (first, second, lambda: None)[min(comm.rank, 2)]
