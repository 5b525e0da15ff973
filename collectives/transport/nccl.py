"""A group's NCCL communicator: how calls are launched, looked after, and ended.

NCCL moves device memory and nothing else: what ranks tell each other goes by our own
messages. Whatever can block inside the library does so where it is looked after: to
join in a thread (`Joining`), to launch under the watchdog (a launch opens connections
that were not needed before), to end in a thread that is left behind if it gets stuck.
NCCL says itself that both ways of ending one wait for the other ranks of a host.
"""

from __future__ import annotations

import ctypes
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from collectives.ending import say
from collectives.errors import BrokenCommunicatorError, DeviceError
from collectives.gpu.arrays import cupy
from collectives.group import Group
from collectives.waiting import PeerLost
from collectives.watchdog import Guarded

ABORT_S = 2.0
CLOSE_S = 20.0
SHARED, SHARED_BYTES = "/dev/shm", 128 << 20

Launch = Callable[[Any, int], None]
"""Calls methods of CuPy's communicator, on the stream whose pointer is given."""


def library() -> Any:
    """Return the module `cupy.cuda.nccl`; reached only with a device array at hand."""
    from cupy.cuda import nccl

    return nccl


def unique_id() -> bytes:
    """Return a new id of a communicator, as its 128 raw bytes.

    CuPy hands out bytes from version 14 on. Before, they were integers in the range of
    C's `char`, which has a sign on x86 and none on Arm (CuPy issues 9430 and 9435).
    """
    return bytes(number & 0xFF for number in library().get_unique_id())


def join(size: int, raw: bytes, rank: int) -> Any:
    """Return CuPy's communicator for a raw id; blocks until all ranks have joined."""
    signed = tuple(number - 256 if number > 127 else number for number in raw)
    for form in (raw, tuple(raw), signed):
        # CuPy looks at the form before it does anything.
        with suppress(TypeError, OverflowError):
            return library().NcclCommunicator(size, form, rank)
    raise DeviceError(f"rank {rank}: this CuPy takes the id of NCCL in no known form")


@contextmanager
def together() -> Iterator[None]:
    """Let NCCL carry out all calls inside at once, when the block ends."""
    nccl = library()
    nccl.groupStart()
    try:
        yield
    finally:
        nccl.groupEnd()


class Joining(threading.Thread):
    """Joins in a thread, and makes a first call, which opens connections."""

    def __init__(self, group: Group, raw: bytes) -> None:
        """Join with the device that is current here; `start()` begins."""
        super().__init__(name="ringfold nccl", daemon=True)
        self._device = cupy().cuda.Device()
        self._place = group.size, raw, group.rank
        self.comm: Any = None
        self.stream: Any = None
        self.through = False
        self.error = ""

    def run(self) -> None:
        """Fill in `comm` and `stream`, and come `through`; or fill in `error`."""
        module, nccl = cupy(), library()
        try:
            with self._device, module.cuda.Stream(non_blocking=True) as stream:
                self.comm, self.stream = join(*self._place), stream
                _keep_for_ever(self.comm)
                one = module.zeros(1, module.int32)
                numbers = 1, nccl.NCCL_INT32, nccl.NCCL_SUM
                self.comm.allReduce(one.data.ptr, one.data.ptr, *numbers, stream.ptr)
                stream.synchronize()
            self.through = True
        except BaseException as error:  # the other ranks must hear of it
            self.error = f"{type(error).__name__}: {error}{_little_memory()}"

    def abort(self) -> None:
        """Give up what there is; what has not joined yet stays where it is."""
        if self.comm is not None:
            _within(ABORT_S, self.comm.abort)


class Nccl:
    """What a group has of NCCL; made by `open_nccl`, ended by `Group.close`."""

    def __init__(self, group: Group, joined: Joining, init_s: float) -> None:
        """Take over CuPy's communicator, in which all ranks of the group are."""
        self.group = group
        self.init_s = init_s
        """Seconds that it took to open, on this rank."""
        self._comm, self._stream = joined.comm, joined.stream
        self._address = int(joined.stream.ptr)
        self._ready = cupy().cuda.Event(disable_timing=True)
        self._error: type[Exception] = library().NcclError

    def begin(self) -> None:
        """Make NCCL's own stream the current one, after what is queued on that so far.

        Nothing on the caller's stream ever waits for a call of NCCL there. So two
        groups, or a call that goes on in the background, can use the same stream in
        different orders on different ranks without waiting for each other for ever.
        """
        self._ready.record()
        self._stream.__enter__()
        self._stream.wait_event(self._ready)

    def end(self) -> None:
        """Make the stream current again that was so at `begin`."""
        self._stream.__exit__(None, None, None)

    def launch(self, what: str, timeout_s: float, calls: Launch) -> None:
        """Put work on NCCL's stream; returns before it is done.

        Raises:
            DeviceError: NCCL refused; the group is broken.
            BrokenCommunicatorError: it was aborted or closed before.
        """
        comm, group = self._comm, self.group
        if comm is None:
            raise BrokenCommunicatorError(
                f"rank {group.rank}: NCCL was given up: {group.broken or 'closed'}"
            )

        def stuck() -> str:
            return f"rank {group.rank} has been stuck for {timeout_s:g} s in {what}"

        try:
            with Guarded(timeout_s, stuck):
                calls(comm, self._address)
        except self._error as error:
            raise self._failed(what, error) from None

    def check(self) -> None:
        """Raise what NCCL has found out while it works; to be called while waiting.

        Raises:
            PeerLost: NCCL has noticed it first, but a process of this host is dead.
            DeviceError: anything else; the group is broken.
        """
        comm = self._comm
        if comm is None:
            return
        try:
            comm.check_async_error()
        except self._error as error:
            liveness = self.group.liveness
            for rank in liveness.dead() if liveness is not None else ():
                raise PeerLost(rank, "died") from None
            raise self._failed("what NCCL was doing", error) from None

    def _failed(self, what: str, error: Exception) -> DeviceError:
        group = self.group
        text = (
            f"rank {group.rank}: {what} failed in {group.doing} #{group.sequence}: "
            f"{error}; NCCL_DEBUG=WARN makes NCCL say more"
        )
        group.broken = text
        self.abort()
        return DeviceError(text)

    def abort(self) -> None:
        """Stop what is under way; nothing can be launched any more."""
        comm, self._comm = self._comm, None
        if comm is not None:
            _within(ABORT_S, comm.abort)

    def close(self) -> None:
        """Give it up in peace; to be called by all ranks, may be called twice."""
        comm, self._comm = self._comm, None
        if comm is not None and not _within(CLOSE_S, comm.destroy):
            say(
                f"ringfold: rank {self.group.rank} could not close NCCL in "
                f"{CLOSE_S:g} s, and leaves it as it is"
            )


def _little_memory() -> str:
    """Return a hint where NCCL may have found too little memory to share."""
    try:
        free = shutil.disk_usage(SHARED).free
    except OSError:
        return ""
    if free >= SHARED_BYTES:
        return ""
    return (
        f"; {SHARED} has {free >> 20} MiB left, and NCCL needs some there for each "
        "rank (docker run --shm-size=1g)"
    )


def _within(seconds: float, end: Callable[[], None]) -> bool:
    """Call what may get stuck, in a thread; tell whether it came back in time."""
    thread = threading.Thread(target=end, name="ringfold nccl end", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter ends and starts no more threads
        end()
        return True
    thread.join(seconds)
    return not thread.is_alive()


def _keep_for_ever(comm: Any) -> None:
    """Keep the garbage collector from ending it, which could wait for other ranks."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(comm))
