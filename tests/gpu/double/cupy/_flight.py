"""What is under way on device memory: not NCCL and MPI at once, nor MPI and work."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cupy import _engine
from cupy._misuse import Misuse

NCCL = "NCCL's "
"""How the work of NCCL is named."""


class Request(NamedTuple):
    """A non-blocking MPI call on device memory."""

    request: Any
    name: str
    spans: Sequence[_engine.Span]
    writes: bool


_requests: list[Request] = []


def began(request: Any, name: str, spans: Sequence[_engine.Span], writes: bool) -> None:
    """Remember a call of MPI until its request is null, as it is when done."""
    _requests.append(Request(request, name, spans, writes))


def _pending() -> list[Request]:
    _requests[:] = [one for one in _requests if one.request]
    return _requests


def mpi_begins(name: str) -> None:
    """Object to MPI on device memory while the host has not waited for NCCL."""
    with _engine.LOCK:
        _engine.prune()
        for work in _engine.RECENT:
            if work.what.startswith(NCCL):
                raise Misuse(f"MPI's {name} on device memory, and {work} is in flight")


def nccl_begins(what: str) -> None:
    """Object to NCCL while MPI has not finished with device memory."""
    for one in _pending():
        raise Misuse(f"{what}, and MPI's {one.name} on device memory is in flight")


def work_begins(work: _engine.Work) -> None:
    """Object to work on memory that MPI is using."""
    if not _requests:
        return
    for one in _pending():
        if _engine.meet(work.writes, one.spans) or (
            one.writes and _engine.meet(work.reads, one.spans)
        ):
            raise Misuse(f"{work} touches memory that MPI's {one.name} is using")


_engine.watchers.append(work_begins)
