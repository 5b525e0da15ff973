"""The runtime's functions on memory: device, pinned, and of other processes."""

import ctypes
import mmap
import os

from cupy import _engine, _ranges
from cupy._blocks import Block, owner_of
from cupy._config import CONFIG
from cupy._constants import (
    CUDARuntimeError,
    cudaIpcMemLazyEnablePeerAccess,
    errorHostMemoryAlreadyRegistered,
    errorHostMemoryNotRegistered,
    errorInvalidValue,
    memoryTypeDevice,
    memoryTypeHost,
    memoryTypeUnregistered,
)
from cupy._devices import blocks, getDevice
from cupy._misuse import note

_opened: dict[bytes, tuple[int, int]] = {}
"""By handle: the address here, and how often it was opened."""
_host_maps: dict[int, mmap.mmap] = {}


def malloc(size: int) -> int:
    block = Block.make(size, getDevice())
    with _engine.LOCK:
        blocks[block.address] = block
        high = block.address + max(size, 1)
        _ranges.add(
            _ranges.Range(block.address, high, "device", block.device, "", block)
        )
    return block.address


def free(ptr: int) -> None:
    if ptr == 0:
        return
    if ptr not in blocks:
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
        blocks.pop(ptr).free()


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
    return blocks[found.low].handle


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
