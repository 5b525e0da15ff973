"""The runtime's functions, under CuPy's names and with its arguments."""

import ctypes
import itertools
import mmap
import os
import threading
import zlib
from typing import Any

from cupy import _engine, _ranges
from cupy._blocks import Block, owner_of
from cupy._config import CONFIG
from cupy._misuse import Misuse, note

is_hip = False
memcpyHostToHost, memcpyHostToDevice = 0, 1
memcpyDeviceToHost, memcpyDeviceToDevice, memcpyDefault = 2, 3, 4
memoryTypeUnregistered, memoryTypeHost = 0, 1
memoryTypeDevice, memoryTypeManaged = 2, 3
cudaMemoryTypeHost, cudaMemoryTypeDevice = 1, 2
streamDefault, streamNonBlocking = 0, 1
streamLegacy, streamPerThread = 1, 2
eventDefault, eventBlockingSync, eventDisableTiming, eventInterprocess = 0, 1, 2, 4
hostAllocDefault, hostAllocPortable, hostAllocMapped, hostAllocWriteCombined = (
    0,
    1,
    2,
    4,
)
cudaIpcMemLazyEnablePeerAccess = 1
errorInvalidValue, errorMemoryAllocation, errorNotReady = 1, 2, 600
errorPeerAccessAlreadyEnabled = 704
errorHostMemoryAlreadyRegistered, errorHostMemoryNotRegistered = 712, 713
cudaDevAttrUnifiedAddressing = 41
cudaDevAttrMultiProcessorCount = 16
cudaDevAttrPciBusId, cudaDevAttrPciDeviceId, cudaDevAttrPciDomainId = 33, 34, 50
cudaDevAttrComputeMode = 20

ERRORS = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    3: ("cudaErrorInitializationError", "initialization error"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    201: ("cudaErrorDeviceUninitialized", "invalid device context"),
    217: ("cudaErrorPeerAccessUnsupported", "peer access is not supported"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("cudaErrorNotReady", "device not ready"),
    704: ("cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"),
    705: ("cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"),
    712: ("cudaErrorHostMemoryAlreadyRegistered", "already registered"),
    713: ("cudaErrorHostMemoryNotRegistered", "pointer is not registered"),
    801: ("cudaErrorNotSupported", "operation not supported"),
}


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__("{}: {}".format(*ERRORS[status]))

    def __reduce__(self) -> Any:
        return (type(self), (self.status,))


# --- devices --------------------------------------------------------------------------

_local = threading.local()
_main = threading.get_ident()
_peers: set[tuple[int, int]] = set()


def driverGetVersion() -> int:
    return 13000


def runtimeGetVersion() -> int:
    return 12090


def getDeviceCount() -> int:
    if not CONFIG.visible:
        raise CUDARuntimeError(100)
    return len(CONFIG.visible)


def getDevice() -> int:
    getDeviceCount()
    if not hasattr(_local, "device"):
        # The runtime begins with device 0 in each thread; the first thread of a rank is
        # taken to have chosen its device already.
        _local.device = CONFIG.first if threading.get_ident() == _main else 0
    return int(_local.device)


def setDevice(device: int) -> None:
    _known(device)
    _local.device = device


def _known(device: int) -> None:
    if not 0 <= device < getDeviceCount():
        raise CUDARuntimeError(101)


def deviceSynchronize() -> None:
    device = getDevice()
    for queue in [q for q in _engine.QUEUES.values() if q.device == device]:
        _engine.synchronize(_engine.mark(queue))


def getDeviceProperties(device: int) -> dict[str, Any]:
    _known(device)
    return {
        "name": b"Test double",
        "uuid": CONFIG.uuid(device),
        "totalGlobalMem": 16 << 30,
        "multiProcessorCount": 4,
        "pciBusID": CONFIG.visible[device] + 1,
        "pciDeviceID": 0,
        "pciDomainID": CONFIG.host,
        "major": 9,
        "minor": 0,
        "computeMode": 0,
        "unifiedAddressing": 1,
        "asyncEngineCount": 2,
        "integrated": 0,
        "memoryBusWidth": 5120,
        "memoryClockRate": 1000000,
        "canMapHostMemory": 1,
    }


def deviceGetAttribute(attribute: int, device: int) -> int:
    properties = getDeviceProperties(device)
    known = {
        cudaDevAttrUnifiedAddressing: 1,
        cudaDevAttrMultiProcessorCount: properties["multiProcessorCount"],
        cudaDevAttrPciBusId: properties["pciBusID"],
        cudaDevAttrPciDeviceId: 0,
        cudaDevAttrPciDomainId: properties["pciDomainID"],
        cudaDevAttrComputeMode: 0,
    }
    return int(known.get(attribute, 0))


def deviceGetPCIBusId(device: int) -> str:
    properties = getDeviceProperties(device)
    return f"{properties['pciDomainID']:04X}:{properties['pciBusID']:02X}:00.0"


def deviceGetByPCIBusId(pci_bus_id: str) -> int:
    for device in range(getDeviceCount()):
        if deviceGetPCIBusId(device) == pci_bus_id:
            return device
    raise CUDARuntimeError(101)


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
    _known(device)
    _known(peerDevice)
    return int(device != peerDevice and "peer" not in CONFIG.lacks)


def deviceEnablePeerAccess(peerDevice: int) -> None:
    if not deviceCanAccessPeer(getDevice(), peerDevice):
        raise CUDARuntimeError(217 if peerDevice != getDevice() else 101)
    if (getDevice(), peerDevice) in _peers:
        raise CUDARuntimeError(errorPeerAccessAlreadyEnabled)
    _peers.add((getDevice(), peerDevice))


def deviceDisablePeerAccess(peerDevice: int) -> None:
    if (getDevice(), peerDevice) not in _peers:
        raise CUDARuntimeError(705)
    _peers.remove((getDevice(), peerDevice))


def _deviceEnsurePeerAccess(peerDevice: int) -> None:
    _peers.add((getDevice(), peerDevice))


def memGetInfo() -> tuple[int, int]:
    device = getDevice()
    used = sum(block.size for block in _blocks.values() if block.device == device)
    return (16 << 30) - used, 16 << 30


# --- memory ---------------------------------------------------------------------------

_blocks: dict[int, Block] = {}
_opened: dict[bytes, tuple[int, int]] = {}
"""By handle: the address here, and how often it was opened."""
_host_maps: dict[int, mmap.mmap] = {}


def malloc(size: int) -> int:
    block = Block.make(size, getDevice())
    with _engine.LOCK:
        _blocks[block.address] = block
        high = block.address + max(size, 1)
        _ranges.add(
            _ranges.Range(block.address, high, "device", block.device, "", block)
        )
    return block.address


def free(ptr: int) -> None:
    if ptr == 0:
        return
    if ptr not in _blocks:
        raise CUDARuntimeError(errorInvalidValue)
    with _engine.LOCK:
        found = _ranges.find(ptr)
        assert found is not None
        pending = [w for w in _engine.unordered((ptr, found.high)) if not w.done]
        if pending:
            note(f"memory is freed while {pending[0]} is pending on it")
            for work in pending:
                _engine.synchronize(work)
        found.gone = "was freed"
        _blocks.pop(ptr).free()


def hostAlloc(size: int, flags: int) -> int:
    memory = mmap.mmap(-1, max(size, 1))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    _host_maps[address] = memory
    _ranges.add(_ranges.Range(address, address + max(size, 1), "pinned"))
    return address


def freeHost(ptr: int) -> None:
    if ptr not in _host_maps:
        raise CUDARuntimeError(errorInvalidValue)
    _let_go(ptr, "pinned memory is freed")
    # The mapping goes when nothing has it exported any more; the pages go now.
    memory = _host_maps.pop(ptr)
    memory.madvise(mmap.MADV_DONTNEED)
    _parked.append(memory)


_parked: list[mmap.mmap] = []
"""Freed host memory: its addresses are not given out again."""


def hostRegister(ptr: int, size: int, flags: int) -> None:
    for end in (ptr, ptr + size - 1):
        found = _ranges.find(end)
        if found is not None and not found.gone:
            raise CUDARuntimeError(errorHostMemoryAlreadyRegistered)
    _ranges.add(_ranges.Range(ptr, ptr + size, "pinned"))


def hostUnregister(ptr: int) -> None:
    found = _ranges.find(ptr)
    if found is None or found.low != ptr or found.kind != "pinned":
        raise CUDARuntimeError(errorHostMemoryNotRegistered)
    _let_go(ptr, "registered memory is given back")


def _let_go(ptr: int, what: str) -> None:
    found = _ranges.find(ptr)
    assert found is not None
    with _engine.LOCK:
        pending = [w for w in _engine.unordered((ptr, found.high)) if not w.done]
        _ranges.remove(found)
    if pending:
        note(f"{what} while {pending[0]} is pending on it")


class PointerAttributes:
    def __init__(
        self, device: int, devicePointer: int, hostPointer: int, type: int
    ) -> None:
        self.device, self.type = device, type
        self.devicePointer, self.hostPointer = devicePointer, hostPointer


def pointerGetAttributes(ptr: int) -> PointerAttributes:
    found = _ranges.find(ptr)
    if found is None or found.gone:
        return PointerAttributes(-2, 0, 0, memoryTypeUnregistered)
    if found.kind == "pinned":
        return PointerAttributes(getDevice(), ptr, ptr, memoryTypeHost)
    return PointerAttributes(found.device, ptr, 0, memoryTypeDevice)


def pointerGetMemoryType(ptr: int) -> int:
    return pointerGetAttributes(ptr).type


def ipcGetMemHandle(devPtr: int) -> bytes:
    """Return the handle of the whole allocation that an address lies in."""
    found = _ranges.find(devPtr)
    if found is None or found.kind != "device" or found.gone:
        raise CUDARuntimeError(errorInvalidValue)
    if "ipc" in CONFIG.lacks:
        raise CUDARuntimeError(801)
    return _blocks[found.low].handle


def ipcOpenMemHandle(handle: bytes, flags: int = cudaIpcMemLazyEnablePeerAccess) -> int:
    """Return where the allocation begins here, wherever the handle's address was."""
    if len(handle) != 64:
        raise CUDARuntimeError(errorInvalidValue)
    if owner_of(handle) == os.getpid():
        raise CUDARuntimeError(201)
    with _engine.LOCK:
        if handle in _opened:
            address, times = _opened[handle]
            _opened[handle] = address, times + 1
            return address
        try:
            block = Block.open(handle)
        except (OSError, ValueError):
            raise CUDARuntimeError(400) from None
        if "peer" in CONFIG.lacks and block.place != CONFIG.visible[getDevice()]:
            block.close()
            raise CUDARuntimeError(217)
        low, high = block.address, block.address + block.size
        _ranges.add(_ranges.Range(low, high, "peer", block.device, "", block))
        _opened[handle] = low, 1
        return low


def ipcCloseMemHandle(devPtr: int) -> None:
    with _engine.LOCK:
        found = _ranges.find(devPtr)
        handle = next((h for h, (low, _) in _opened.items() if low == devPtr), None)
        if found is None or found.kind != "peer" or handle is None:
            raise CUDARuntimeError(errorInvalidValue)
        _, times = _opened[handle]
        if times > 1:
            _opened[handle] = devPtr, times - 1
            return
        pending = [w for w in _engine.unordered((devPtr, found.high)) if not w.done]
        if pending:
            note(f"an IPC handle is closed while {pending[0]} is pending on its memory")
        del _opened[handle]
        found.gone = "was opened by an IPC handle that has been closed"
        block = found.memory
        assert isinstance(block, Block)
        block.close()


# --- copies ---------------------------------------------------------------------------


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


# --- streams and events ---------------------------------------------------------------

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
