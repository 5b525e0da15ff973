"""The runtime's streams and events, by their handles."""

import itertools
from typing import Any

from cupy import _engine
from cupy._constants import (
    errorNotReady,
    eventDefault,
    streamDefault,
    streamNonBlocking,
)
from cupy._devices import getDevice

_numbers = itertools.count(0x5000)
_events: dict[int, _engine.Work | None] = {}


def streamCreateWithFlags(flags: int) -> int:
    ptr = next(_numbers)
    with _engine.LOCK:
        _engine.QUEUES[ptr] = _engine.Queue(
            getDevice(), ptr, not flags & streamNonBlocking
        )
    return ptr


def streamCreate() -> int:
    return streamCreateWithFlags(streamDefault)


def streamCreateWithPriority(flags: int, priority: int) -> int:
    return streamCreateWithFlags(flags)


def streamGetFlags(stream: int) -> int:
    return 0 if _engine.queue(getDevice(), stream).blocking else streamNonBlocking


def streamGetPriority(stream: int) -> int:
    return 0


def streamDestroy(stream: int) -> None:
    _engine.destroy(stream)


def streamSynchronize(stream: int) -> None:
    _engine.synchronize(_engine.mark(_engine.queue(getDevice(), stream)))


def streamQuery(stream: int) -> int:
    return 0 if _engine.idle(_engine.queue(getDevice(), stream)) else errorNotReady


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:
    work = _events[event]
    if work is not None:
        _engine.wait_event(_engine.queue(getDevice(), stream), work)


def launchHostFunc(stream: int, callback: Any, arg: Any) -> None:
    queue = _engine.queue(getDevice(), stream)

    def run() -> None:
        callback(arg)

    _engine.submit(queue, "a host function", run)


def eventCreateWithFlags(flags: int) -> int:
    getDevice()
    ptr = next(_numbers)
    _events[ptr] = None
    return ptr


def eventCreate() -> int:
    return eventCreateWithFlags(eventDefault)


def eventDestroy(event: int) -> None:
    _events.pop(event, None)


def eventRecord(event: int, stream: int) -> None:
    _events[event] = _engine.mark(_engine.queue(getDevice(), stream))


def eventQuery(event: int) -> int:
    work = _events[event]
    return 0 if work is None or _engine.query(work) else errorNotReady


def eventSynchronize(event: int) -> None:
    work = _events[event]
    if work is not None:
        _engine.synchronize(work)


def eventElapsedTime(start: int, end: int) -> float:
    return 1e-3
