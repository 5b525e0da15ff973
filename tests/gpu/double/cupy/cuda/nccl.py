"""NCCL between processes, or between devices of one: really waits, really queues."""

import os
import threading
import time
from typing import Any

import numpy as np

from cupy import _engine, _flight
from cupy._config import CONFIG
from cupy._meeting import Meeting, new_name
from cupy._misuse import Misuse, note
from cupy._nccl_calls import AVG, DTYPES, Call, finish, ready, start
from cupy.cuda import runtime

available = "nccl" not in CONFIG.lacks
BYTES = 128
VERSION = 23203

NCCL_INT8 = NCCL_CHAR = 0
NCCL_UINT8 = 1
NCCL_INT32 = NCCL_INT = 2
NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = 3, 4, 5
NCCL_FLOAT16 = NCCL_HALF = 6
NCCL_FLOAT32 = NCCL_FLOAT = 7
NCCL_FLOAT64 = NCCL_DOUBLE = 8
NCCL_BFLOAT16 = 9
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)

ERRORS = {
    1: "NCCL_ERROR_UNHANDLED_CUDA_ERROR: unhandled cuda error",
    2: "NCCL_ERROR_SYSTEM_ERROR: unhandled system error",
    3: "NCCL_ERROR_INTERNAL_ERROR: internal error",
    4: "NCCL_ERROR_INVALID_ARGUMENT: invalid argument",
    5: "NCCL_ERROR_INVALID_USAGE: invalid usage",
    6: "NCCL_ERROR_REMOTE_ERROR: remote process exited or there was a network error",
}


class NcclError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(ERRORS[status])

    def __reduce__(self) -> Any:
        return (type(self), (self.status,))


def get_version() -> int:
    return VERSION


def get_build_version() -> int:
    return VERSION


def get_unique_id() -> bytes:
    return new_name().ljust(BYTES, b"\0")


# --- groups ---------------------------------------------------------------------------

_local = threading.local()


class _Group:
    def __init__(self) -> None:
        self.depth = 0
        self.calls: list[tuple[NcclCommunicator, Call, int, int]] = []
        self.joining: list[NcclCommunicator] = []


def _group() -> _Group:
    if not hasattr(_local, "group"):
        _local.group = _Group()
    return _local.group  # type: ignore[no-any-return]


def groupStart() -> None:
    _group().depth += 1


def groupEnd() -> None:
    group = _group()
    if group.depth == 0:
        raise NcclError(5)
    group.depth -= 1
    if group.depth == 0:
        _flush(group)


def _flush(group: _Group) -> None:
    """Launch all calls of a group together, those of a communicator as one."""
    joining, group.joining = group.joining, []
    calls, group.calls = group.calls, []
    for comm in joining:
        comm._await()
    by_comm: dict[Any, list[tuple[Call, int, int]]] = {}
    for comm, call, device, stream in calls:
        by_comm.setdefault(comm, []).append((call, device, stream))
    for comm, theirs in by_comm.items():
        comm._launch(theirs)


class NcclConfig:
    def __init__(self, split_share: int = 0) -> None:
        self.split_share = split_share


# --- communicators --------------------------------------------------------------------


class NcclCommunicator:
    def __init__(
        self, ndev: int, commId: bytes, rank: int, config: NcclConfig | None = None
    ) -> None:
        if not isinstance(commId, bytes):
            raise TypeError(f"expected bytes, {type(commId).__name__} found")
        if len(commId) != BYTES:
            raise ValueError(f"commId length {len(commId)} != {BYTES}.")
        self._join(ndev, commId, rank, runtime.getDevice())
        group = _group()
        group.joining.append(self)
        if group.depth == 0:
            _flush(group)

    def _join(self, ndev: int, commId: bytes, rank: int, device: int) -> None:
        if not 0 <= rank < ndev:
            raise NcclError(4)
        self._over = ""
        self._device, self._rank, self._size = device, rank, ndev
        self._meeting = Meeting(commId.rstrip(b"\0"), rank, ndev, CONFIG.uuid(device))
        self._calls = 0
        self._messages: dict[tuple[str, int, int], int] = {}
        self._launched: list[_engine.Work] = []
        self._failed = 0

    def _await(self) -> None:
        """Wait for the others, for as long as it takes."""
        while not self._meeting.complete():
            time.sleep(0.0005)
        if self._meeting.doubled():
            self._over = "failed to initialize"
            self._meeting.leave()
            raise NcclError(5)

    @staticmethod
    def initAll(devices: Any) -> "list[NcclCommunicator]":
        if isinstance(devices, int):
            devices = list(range(devices))
        name, comms = get_unique_id(), []
        for rank, device in enumerate(devices):
            comm = NcclCommunicator.__new__(NcclCommunicator)
            comm._join(len(devices), name, rank, device)
            comms.append(comm)
        for comm in comms:
            comm._await()
        return comms

    comm = property(lambda self: 0 if self._over else id(self))

    def _alive(self) -> None:
        if self._over:
            raise Misuse(f"an NCCL communicator is used that was {self._over}")

    def device_id(self) -> int:
        self._alive()
        return self._device

    def rank_id(self) -> int:
        self._alive()
        return self._rank

    def size(self) -> int:
        self._alive()
        return self._size

    def destroy(self) -> None:
        if self._over:
            return
        self._over = "destroyed"
        pending = [work for work in self._launched if not work.done]
        if pending:
            note(f"an NCCL communicator is destroyed while {pending[0]} is pending")
            _engine.cancel(pending)
        self._meeting.leave()

    def abort(self) -> None:
        if self._over:
            return
        self._over = "aborted"
        _engine.cancel(self._launched)
        self._meeting.leave()

    def __del__(self) -> None:
        if getattr(self, "_over", "never made") == "" and os.getpid() == _engine.PID:
            self.destroy()

    def check_async_error(self) -> None:
        self._alive()
        if self._failed:
            raise NcclError(self._failed)
        pending = [work for work in self._launched if not work.done]
        if pending and self._meeting.lost():
            raise NcclError(6)

    # --- calls; lengths are numbers of elements ---

    def allReduce(
        self,
        sendbuf: int,
        recvbuf: int,
        count: int,
        datatype: int,
        op: int,
        stream: int,
    ) -> None:
        self._call("allReduce", sendbuf, recvbuf, count, count, datatype, stream, op)

    def reduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int,
        stream: int,
    ) -> None:  # fmt: skip
        taken = count if root == self._rank else 0
        self._call("reduce", sendbuf, recvbuf, count, taken, datatype, stream, op, root)

    def broadcast(
        self,
        sendbuff: int,
        recvbuff: int,
        count: int,
        datatype: int,
        root: int,
        stream: int,
    ) -> None:
        given = count if root == self._rank else 0
        self._call(
            "broadcast", sendbuff, recvbuff, given, count, datatype, stream, -1, root
        )

    def bcast(
        self, buff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        self.broadcast(buff, buff, count, datatype, root, stream)

    def reduceScatter(
        self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int,
        stream: int,
    ) -> None:  # fmt: skip
        given = recvcount * self._size
        self._call(
            "reduceScatter", sendbuf, recvbuf, given, recvcount, datatype, stream, op
        )

    def allGather(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int
    ) -> None:
        taken = count * self._size
        self._call("allGather", sendbuf, recvbuf, count, taken, datatype, stream)

    def send(
        self, sendbuf: int, count: int, datatype: int, peer: int, stream: int
    ) -> None:
        self._call("send", sendbuf, 0, count, 0, datatype, stream, peer=peer)

    def recv(
        self, recvbuf: int, count: int, datatype: int, peer: int, stream: int
    ) -> None:
        self._call("recv", 0, recvbuf, 0, count, datatype, stream, peer=peer)

    def _call(
        self, name: str, send: int, receive: int, sent: int, received: int,
        datatype: int, stream: int, op: int = -1, root: int = -1, peer: int = -1,
    ) -> None:  # fmt: skip
        self._alive()
        wrong = not -1 <= op <= AVG or max(root, peer) >= self._size
        if wrong or not 0 <= datatype < len(DTYPES):
            raise NcclError(4)
        dtype = np.dtype(DTYPES[datatype])
        call = Call(name, send, receive, sent, received, dtype, op, root, peer)
        call.check(self._device, self._rank)
        if peer >= 0:
            ends = (self._rank, peer) if name == "send" else (peer, self._rank)
            which = (name, *ends)
            number = self._messages.get(which, 0)
            self._messages[which] = number + 1
            call.key = f"m{ends[0]}.{ends[1]}.{number}"
        else:
            call.key, call.number = f"c{self._calls}", self._calls
            self._calls += 1
        group = _group()
        group.calls.append((self, call, runtime.getDevice(), stream))
        if group.depth == 0:
            _flush(group)

    def _launch(self, theirs: list[tuple[Call, int, int]]) -> None:
        """Put calls on their stream, as one piece of work."""
        calls = [call for call, _, _ in theirs]
        what = f"{_flight.NCCL}{' and '.join(sorted({call.name for call in calls}))}"
        _flight.nccl_begins(what)
        queues = list(dict.fromkeys(_engine.queue(d, s) for _, d, s in theirs))
        if any(queue.device != self._device for queue in queues):
            raise Misuse(f"{what} of device {self._device} is put on {queues[0]}")
        self._launched = [work for work in self._launched if not work.done] or (
            self._launched[-1:]
        )
        for queue in queues[1:]:
            _engine.wait_event(queues[0], _engine.mark(queue))
        for work in self._launched[-1:]:
            if not _engine.comes_before(work, queues[0]):
                raise Misuse(f"{what} on {queues[0]} is in no order with {work}")
        begun: list[bool] = []

        def run() -> bool:
            if self._failed:
                return False
            if not begun:
                begun.append(True)
                for call in calls:
                    start(call, self._meeting)
            if not all(ready(call, self._meeting) for call in calls):
                return False
            for call in calls:
                finish(call, self._meeting)
            numbers = [call.number for call in calls if call.number >= 0]
            if numbers:
                self._meeting.done(numbers[-1] + 1)
            return True

        reads = [span for call in calls for span in call.span("send")]
        writes = [span for call in calls for span in call.span("receive")]
        work = _engine.submit(queues[0], what, run, reads, writes)
        self._launched.append(work)
        for queue in queues[1:]:
            _engine.wait_event(queue, work)

    def commSplit(
        self, color: int, key: int, config: NcclConfig | None = None
    ) -> "NcclCommunicator | None":
        raise NotImplementedError("the double has no commSplit")


def fail(comm: NcclCommunicator, status: int) -> None:
    """Let a communicator fail, as after a fault of the network; for tests only."""
    comm._failed = status


if not available:
    for _name in [name for name in globals() if name[0] != "_" and name != "available"]:
        del globals()[_name]
