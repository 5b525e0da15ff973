"""The runtime's copies, which are late where they may be."""

import ctypes
import zlib
from typing import Any

from cupy import _engine, _ranges
from cupy._constants import (
    memcpyDefault,
    memcpyDeviceToDevice,
    memcpyDeviceToHost,
    memcpyHostToDevice,
    memcpyHostToHost,
)
from cupy._devices import getDevice
from cupy._misuse import Misuse


def _side(address: int, size: int, what: str) -> str:
    found = _ranges.usable(address, size, what)
    if found is None:
        return "pageable"
    return "pinned" if found.kind == "pinned" else "device"


KINDS = {
    memcpyHostToHost: ("host", "host"),
    memcpyHostToDevice: ("host", "device"),
    memcpyDeviceToHost: ("device", "host"),
    memcpyDeviceToDevice: ("device", "device"),
}


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    if size:
        _copy(dst, src, size, kind, _engine.queue(getDevice(), stream))


def memcpy(dst: int, src: int, size: int, kind: int) -> None:
    if size:
        _engine.synchronize(_copy(dst, src, size, kind, _engine.queue(getDevice(), 0)))


def memcpyPeerAsync(
    dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int
) -> None:
    memcpyAsync(dst, src, size, memcpyDefault, stream)


def memcpyPeer(dst: int, dstDevice: int, src: int, srcDevice: int, size: int) -> None:
    memcpy(dst, src, size, memcpyDefault)


def _copy(
    dst: int, src: int, size: int, kind: int, queue: _engine.Queue
) -> _engine.Work:
    with _engine.LOCK:  # another thread may drive the stream meanwhile
        work, target = _submit_copy(dst, src, size, kind, queue)
    if target == "pageable":
        _engine.synchronize(work)
    return work


def _submit_copy(
    dst: int, src: int, size: int, kind: int, queue: _engine.Queue
) -> tuple[_engine.Work, str]:
    what = f"a copy of {size} bytes"
    source, target = _side(src, size, what), _side(dst, size, what)
    wanted = KINDS.get(kind)
    told = tuple("device" if side == "device" else "host" for side in (source, target))
    if wanted is not None and wanted != told:
        raise Misuse(
            f"{what} was called {'-to-'.join(wanted)}, and is {'-to-'.join(told)}"
        )
    reads, writes = [(src, src + size)], [(dst, dst + size)]
    if source == "pageable":  # the driver has taken the bytes before it returns
        kept = ctypes.create_string_buffer(ctypes.string_at(src, size), size)
        work = _engine.submit(queue, what, lambda: _move(dst, kept, size), [], writes)
    elif source == "pinned" and not _engine.unwritten(reads[0]):
        sum_ = zlib.crc32(_bytes(src, size))

        def run() -> None:
            if zlib.crc32(_bytes(src, size)) != sum_:
                raise Misuse(f"the host changed the pinned source of {what} too early")
            _move(dst, src, size)

        work = _engine.submit(queue, what, run, reads, writes)
    else:
        work = _engine.submit(queue, what, lambda: _move(dst, src, size), reads, writes)
    if target == "pinned" and _engine.unordered(writes[0]) == [work]:
        ctypes.memset(dst, 0xEB, size)  # what a host sees that does not wait
    return work, target


def _bytes(address: int, size: int) -> Any:
    return (ctypes.c_char * size).from_address(address)


def _move(dst: Any, src: Any, size: int) -> None:
    ctypes.memmove(dst, src, size)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    _ranges.on_device(ptr, size, "memset")
    queue = _engine.queue(getDevice(), stream)

    def run() -> None:
        ctypes.memset(ptr, value, size)

    _engine.submit(queue, "memset", run, [], [(ptr, ptr + size)])


def memset(ptr: int, value: int, size: int) -> None:
    memsetAsync(ptr, value, size, 0)
