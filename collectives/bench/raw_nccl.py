"""Calls of NCCL made raw through CuPy, and copies: what ours are compared with.

The stream is waited for in every call, as ours are complete when they return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectives.bench.case import Array, Call, Runner, Setup
from collectives.communicator import Communicator
from collectives.gpu.arrays import cupy

__all__ = ["COPIES", "RUNNERS", "close", "copy", "host_copy"]

DTYPES = {
    "int8": "INT8",
    "uint8": "UINT8",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
    "uint64": "UINT64",
    "float16": "FLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
}
OPS = ("sum", "prod", "max", "min")


_opened: dict[int, Any] = {}


def _nccl(comm: Communicator) -> Any:
    """Return a communicator of NCCL's own, on the current device. Collective."""
    from cupy.cuda import nccl

    if id(comm) not in _opened:
        own = nccl.get_unique_id() if comm.rank == 0 else None
        own = comm.broadcast_object(own)
        _opened[id(comm)] = nccl.NcclCommunicator(comm.size, own, comm.rank)
    return _opened[id(comm)]


def close(comm: Communicator) -> None:
    """End that communicator, if there is one, before the process ends. Collective."""
    if id(comm) in _opened:
        _opened.pop(id(comm)).destroy()


def _bound(
    enqueue: Callable[[Any, Setup, tuple[int, int], int, int, int, int], None],
) -> Runner:
    """Return what binds a call: function, addresses, count, dtype, op and stream."""

    def bind(s: Setup, send: Array, receive: Array) -> Call:
        from cupy.cuda import nccl

        own, addresses = _nccl(s.comm), (_address(send), _address(receive))
        dtype = getattr(nccl, f"NCCL_{DTYPES[str(send.dtype)]}")
        op = getattr(nccl, f"NCCL_{s.op.upper()}") if s.op in OPS else -1
        stream = cupy().cuda.get_current_stream()
        count, pointer = min(send.size, receive.size), stream.ptr

        def call() -> None:
            enqueue(own, s, addresses, count, dtype, op, pointer)
            stream.synchronize()

        return call

    return bind


def _address(array: Any) -> int:
    return int(array.data.ptr)


RUNNERS: dict[str, Runner] = {
    "all_reduce": _bound(
        lambda own, s, at, count, dtype, op, stream: own.allReduce(
            *at, count, dtype, op, stream
        )
    ),
    "reduce": _bound(
        lambda own, s, at, count, dtype, op, stream: own.reduce(
            *at, count, dtype, op, s.root, stream
        )
    ),
    "reduce_scatter": _bound(
        lambda own, s, at, count, dtype, op, stream: own.reduceScatter(
            *at, count, dtype, op, stream
        )
    ),
    "broadcast": _bound(
        lambda own, s, at, count, dtype, op, stream: own.broadcast(
            *at, count, dtype, s.root, stream
        )
    ),
    "all_gather": _bound(
        lambda own, s, at, count, dtype, op, stream: own.allGather(
            *at, count, dtype, stream
        )
    ),
}
"""By collective."""


def copy(s: Setup, send: Array, receive: Array) -> Call:
    """Bind a copy of the array in the device's memory."""
    source, target = _apart(send, receive)
    stream = cupy().cuda.get_current_stream()
    runtime = cupy().cuda.runtime

    def call() -> None:
        runtime.memcpyAsync(
            _address(target),
            _address(source),
            source.nbytes,
            runtime.memcpyDeviceToDevice,
            stream.ptr,
        )
        stream.synchronize()

    return call


def host_copy(s: Setup, send: Array, receive: Array) -> Call:
    """Bind a copy into pinned memory of the host, and back."""
    source, target = _apart(send, receive)
    stream, runtime = cupy().cuda.get_current_stream(), cupy().cuda.runtime
    pinned = cupy().cuda.alloc_pinned_memory(max(1, source.nbytes))

    def call() -> None:
        runtime.memcpyAsync(
            pinned.ptr,
            _address(source),
            source.nbytes,
            runtime.memcpyDeviceToHost,
            stream.ptr,
        )
        runtime.memcpyAsync(
            _address(target),
            pinned.ptr,
            source.nbytes,
            runtime.memcpyHostToDevice,
            stream.ptr,
        )
        stream.synchronize()

    return call


def _apart(send: Any, receive: Any) -> tuple[Any, Any]:
    """Return the two arrays; of one that stands for both a second is made."""
    length = min(send.size, receive.size)
    source, target = send[:length], receive[:length]
    same = _address(source) == _address(target)
    return source, cupy().empty_like(target) if same else target


COPIES: dict[str, Runner] = {"copy": copy, "host_copy": host_copy}
"""What no collective can be faster than: one copy on the device, and what staging
costs at least. They leave no result of the collective."""
