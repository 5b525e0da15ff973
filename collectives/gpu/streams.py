"""The order of work on a GPU, in one place.

Work is queued on a *stream* and done later. MPI and the processor know nothing of
that. So whatever a call does on the device it queues on the caller's current stream,
after what the caller has queued there, and before anybody else than the device looks
at that memory the stream is waited for. A call returns when its result is complete:
then it may be read on any stream, and by anybody.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from collectives.errors import CollectiveTimeoutError, InvalidArgumentError
from collectives.gpu.arrays import cupy
from collectives.waiting import TimedOut, wait_until


class Waiting(Protocol):
    """Something with a deadline that looks after its peers: a group."""

    def wait(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Poll until `ready`."""


def finish(
    waiting: Waiting, timeout_s: float, health: Callable[[], None] | None = None
) -> None:
    """Wait until the current stream has done all that is queued on it.

    Args:
        waiting: the group whose call this is: deadline, dead peers.
        timeout_s: seconds before `TimedOut`.
        health: called between looks; may raise.

    Raises:
        TimedOut, PeerLost: see `Group.wait`.
    """
    if not cupy().cuda.get_current_stream().done:
        wait_for(waiting, _mark(), timeout_s, health)


def wait_for(
    waiting: Waiting,
    event: Any,
    timeout_s: float,
    health: Callable[[], None] | None = None,
) -> None:
    """Wait for an event that has been recorded; arguments and errors as of `finish`."""

    def ready() -> bool:
        if event.done:
            return True
        if health is not None:
            health()
        return False

    waiting.wait(ready, timeout_s)


def settle(timeout_s: float) -> None:
    """Wait, before a call begins, for what the caller has queued.

    Raises:
        CollectiveTimeoutError: the device is still not done with it.
    """
    try:
        event = _mark()
        wait_until(lambda: bool(event.done), timeout_s=timeout_s)
    except TimedOut:
        raise CollectiveTimeoutError(
            f"the GPU has been busy for {timeout_s} s with what was queued before "
            "this call, on the stream that is current"
        ) from None


def _mark() -> Any:
    """Return the event that all that is queued by now has been done."""
    event = cupy().cuda.Event(disable_timing=True)
    event.record()
    return event


def using(array: Any) -> AbstractContextManager[Any]:
    """Return what makes the device of a CuPy array the current one."""
    device: AbstractContextManager[Any] = array.device
    return device


def on(stream: Any) -> AbstractContextManager[Any]:
    """Return what makes a stream the current one.

    Args:
        stream: of CuPy, torch or numba, or the address of one; None changes nothing.

    Raises:
        InvalidArgumentError: it is none of those.
    """
    if stream is None:
        return nullcontext()
    module = cupy()
    if isinstance(stream, module.cuda.Stream | module.cuda.ExternalStream):
        own: AbstractContextManager[Any] = stream
        return own
    address = getattr(stream, "cuda_stream", None)  # torch
    if address is None:
        handle = getattr(stream, "handle", None)  # numba
        address = getattr(handle, "value", handle) if handle is not None else stream
    if not isinstance(address, int) or isinstance(address, bool):
        raise InvalidArgumentError(
            f"stream is {stream!r}; wanted a stream of CuPy, torch or numba"
        )
    external: AbstractContextManager[Any] = module.cuda.ExternalStream(address)
    return external


def here() -> Callable[[], AbstractContextManager[Any]]:
    """Return what makes this thread's device and stream the current ones in another."""
    module = sys.modules.get("cupy")
    try:
        if module is None:
            return nullcontext
        device, stream = module.cuda.Device(), module.cuda.get_current_stream()
    except Exception:  # there is no GPU, and so no stream to follow
        return nullcontext

    @contextmanager
    def at() -> Iterator[None]:
        with device, stream:
            yield

    return at
