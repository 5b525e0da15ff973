"""MPI that looks at what it is given: memory that a stream may be using is refused.

Communicators made from the world are of a class of their own, whose methods check the
addresses of buffers and then call the real ones.
"""

from collections.abc import Iterator
from typing import Any

from cupy import _engine, _flight, _ranges
from cupy._array import ndarray, spans
from cupy._misuse import Misuse

READS = [
    "Send",
    "Ssend",
    "Bsend",
    "Rsend",
    "Isend",
    "Issend",
    "Ibsend",
    "Irsend",
    "Bcast",
    "Ibcast",
    "Allreduce",
    "Iallreduce",
    "Reduce",
    "Ireduce",
    "Allgather",
    "Iallgather",
    "Allgatherv",
    "Iallgatherv",
    "Gather",
    "Igather",
    "Gatherv",
    "Igatherv",
    "Scatter",
    "Iscatter",
    "Scatterv",
    "Iscatterv",
    "Alltoall",
    "Ialltoall",
    "Alltoallv",
    "Ialltoallv",
    "Reduce_scatter",
    "Ireduce_scatter",
    "Reduce_scatter_block",
    "Ireduce_scatter_block",
    "Scan",
    "Iscan",
    "Exscan",
    "Iexscan",
    "Sendrecv",
    "Isendrecv",
]
WRITES = ["Recv", "Irecv"]
NEVER = ("Iallreduce", "Ireduce", "Ireduce_scatter", "Ireduce_scatter_block", "Iscan")
"""Non-blocking reductions crash on device memory in some MPIs."""

MAKERS = [
    "Split",
    "Split_type",
    "Create",
    "Create_group",
    "Idup",
    "Dup_with_info",
    "Clone",
]


def watched(MPI: Any, comm: Any) -> Any:
    """Return a communicator that checks."""
    return _kind(MPI)(comm)


_made: list[Any] = []


def _kind(MPI: Any) -> Any:
    if not _made:
        names = {name: _checking(MPI, name) for name in READS + WRITES}
        names |= {
            name: _keeping(MPI, name) for name in MAKERS if hasattr(MPI.Intracomm, name)
        }
        _made.append(type("WatchedComm", (MPI.Intracomm,), names))
    return _made[0]


def _keeping(MPI: Any, name: str) -> Any:
    real = getattr(MPI.Intracomm, name)

    def make(self: Any, *args: Any, **more: Any) -> Any:
        made = real(self, *args, **more)
        alike = isinstance(made, MPI.Intracomm) and made != MPI.COMM_NULL
        return watched(MPI, made) if alike else made

    return make


def _checking(MPI: Any, name: str) -> Any:
    real = getattr(MPI.Intracomm, name)

    def call(self: Any, *args: Any, **more: Any) -> Any:
        given = list(_buffers([*args, *more.values()]))
        on_device = [g for g in given if g[2]]
        if on_device:
            if name in NEVER:
                raise Misuse(f"MPI's {name} on device memory crashes some MPIs")
            _flight.mpi_begins(name)
        for place, (low, high, device) in enumerate(given):
            writes = name in WRITES or name.endswith("cast") or place > 0
            if device:
                _ranges.on_device(low, high - low, f"MPI's {name}")
            _engine.check_host(low, high - low, writes=writes, who=f"MPI's {name}")
        result = real(self, *args, **more)
        if on_device and isinstance(result, MPI.Request):
            writes = name not in ("Isend", "Issend", "Ibsend", "Irsend")
            _flight.began(
                result, name, [(low, high) for low, high, _ in on_device], writes
            )
        return result

    return call


def _buffers(values: Any) -> Iterator[tuple[int, int, bool]]:
    """Yield the addresses of device arrays and of pinned host memory."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _buffers(value)
        elif isinstance(value, ndarray):
            yield from ((low, high, True) for low, high in spans(value._view))
        elif hasattr(value, "__cuda_array_interface__"):
            told = value.__cuda_array_interface__
            size = int(told["typestr"][2:])
            for length in told["shape"]:
                size *= length
            yield told["data"][0], told["data"][0] + size, True
        elif hasattr(value, "__array_interface__") and _engine.RECENT:
            yield from ((low, high, False) for low, high in spans(value))
        elif isinstance(value, memoryview) and _engine.RECENT and value.nbytes:
            import numpy as np

            yield from ((low, high, False) for low, high in spans(np.asarray(value)))
