"""What is under way on device memory: never NCCL and MPI at once."""

from typing import Any

from cupy import _engine
from cupy._misuse import Misuse

NCCL = "NCCL's "
"""How the work of NCCL is named."""

requests: list[tuple[Any, str]] = []
"""Non-blocking MPI calls on device memory: the request, and what it is of."""


def mpi_begins(what: str) -> None:
    """Object to MPI on device memory while the host has not waited for NCCL."""
    with _engine.LOCK:
        _engine.prune()
        for work in _engine.RECENT:
            if work.what.startswith(NCCL):
                raise Misuse(f"MPI's {what} on device memory, and {work} is in flight")


def nccl_begins(what: str) -> None:
    """Object to NCCL while MPI has not finished with device memory."""
    requests[:] = [(request, told) for request, told in requests if request]
    if requests:
        raise Misuse(f"{what}, and MPI's {requests[0][1]} on device memory is in flight")
