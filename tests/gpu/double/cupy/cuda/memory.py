"""Device memory as CuPy hands it out: a pool for each stream, and pointers into it."""

import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from cupy import _engine, _ranges
from cupy._misuse import note
from cupy.cuda import runtime
from cupy.cuda.device import Device
from cupy.cuda.stream import get_current_stream

SEGMENT = 32 << 20
"""Small arrays are cut from allocations of this size, so that hardly any begins one."""
SMALL = 1 << 20
UNIT = 512
KEPT = 256 << 20


class OutOfMemoryError(MemoryError):
    pass


class BaseMemory:
    ptr = 0
    size = 0
    device_id = -1

    def __int__(self) -> int:
        return self.ptr

    @property
    def device(self) -> Device:
        return Device(self.device_id)


class Memory(BaseMemory):
    """An allocation of its own."""

    def __init__(self, size: int) -> None:
        self.size, self.device_id = size, runtime.getDevice()
        self.ptr = runtime.malloc(size) if size else 0
        if size:
            weakref.finalize(self, runtime.free, self.ptr).atexit = False


class UnownedMemory(BaseMemory):
    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        if device_id < 0:
            if ptr == 0:
                raise RuntimeError(
                    "UnownedMemory requires explicit device ID for a null pointer."
                )
            device_id = runtime.pointerGetAttributes(ptr).device
        self.ptr, self.size, self.device_id, self._owner = ptr, size, device_id, owner


class PooledMemory(BaseMemory):
    """A piece of the pool, which goes back to the stream that it was taken for."""

    def __init__(self, ptr: int, size: int, device: int, queue: _engine.Queue) -> None:
        self.ptr, self.size, self.device_id, self._queue = ptr, size, device, queue

    def free(self) -> None:
        if not self.ptr:
            return
        ptr, self.ptr = self.ptr, 0
        with _engine.LOCK:
            for work in _engine.unordered((ptr, ptr + self.size)):
                if not _engine.comes_before(work, self._queue):
                    note(f"an array is freed while {work} may still use its memory")
            _free[self._queue, self.size].append(ptr)
            _trim(self.size)

    def __del__(self) -> None:
        if _free is not None:
            self.free()


_free: dict[tuple[_engine.Queue, int], list[int]] = defaultdict(list)
_rest: dict[_engine.Queue, tuple[int, int]] = {}
_kept = 0


def _trim(size: int) -> None:
    """Give large pieces back to the device where many lie idle."""
    global _kept
    if size < SMALL:
        return
    _kept += size
    if _kept > KEPT:
        for (_, length), idle in _free.items():
            if length >= SMALL:
                for ptr in idle:
                    runtime.free(ptr)
                idle.clear()
        _kept = 0


def _pooled(size: int) -> "MemoryPointer":
    global _kept
    device = runtime.getDevice()
    queue = _engine.queue(device, get_current_stream().ptr)
    length = -(-size // UNIT) * UNIT
    with _engine.LOCK:
        idle = _free[queue, length]
        if idle:
            ptr = idle.pop()
            _kept -= length if length >= SMALL else 0
        elif length >= SMALL:
            ptr = runtime.malloc(length)
        else:
            ptr = _cut(queue, length)
    return MemoryPointer(PooledMemory(ptr, length, device, queue), 0)


def _cut(queue: _engine.Queue, length: int) -> int:
    low, high = _rest.get(queue, (0, 0))
    if high - low < length:
        low = runtime.malloc(SEGMENT)
        high = low + SEGMENT
    _rest[queue] = low + length, high
    return low


class MemoryPointer:
    def __init__(self, mem: BaseMemory, offset: int) -> None:
        assert mem.ptr != 0 or offset == 0
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    def __int__(self) -> int:
        return self.ptr

    @property
    def device(self) -> Device:
        return Device(self.device_id)

    def __add__(self, offset: int) -> "MemoryPointer":
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> "MemoryPointer":
        return self + -offset

    def copy_from_device(self, src: "MemoryPointer", size: int) -> None:
        runtime.memcpy(self.ptr, src.ptr, size, runtime.memcpyDefault)

    def copy_from_device_async(
        self, src: "MemoryPointer", size: int, stream: Any = None
    ) -> None:
        self._copy(self.ptr, src.ptr, size, runtime.memcpyDefault, stream)

    def copy_from_host(self, mem: Any, size: int) -> None:
        runtime.memcpy(self.ptr, _address(mem), size, runtime.memcpyHostToDevice)

    def copy_from_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        source = _address(mem)
        self._copy(self.ptr, source, size, runtime.memcpyHostToDevice, stream)

    def copy_from(self, mem: Any, size: int) -> None:
        if isinstance(mem, MemoryPointer):
            self.copy_from_device(mem, size)
        else:
            self.copy_from_host(mem, size)

    def copy_from_async(self, mem: Any, size: int, stream: Any = None) -> None:
        if isinstance(mem, MemoryPointer):
            self.copy_from_device_async(mem, size, stream)
        else:
            self.copy_from_host_async(mem, size, stream)

    def copy_to_host(self, mem: Any, size: int) -> None:
        runtime.memcpy(_address(mem), self.ptr, size, runtime.memcpyDeviceToHost)

    def copy_to_host_async(self, mem: Any, size: int, stream: Any = None) -> None:
        target = _address(mem)
        self._copy(target, self.ptr, size, runtime.memcpyDeviceToHost, stream)

    def memset(self, value: int, size: int) -> None:
        runtime.memset(self.ptr, value, size)

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        runtime.memsetAsync(self.ptr, value, size, _handle(stream))

    @staticmethod
    def _copy(dst: int, src: int, size: int, kind: int, stream: Any) -> None:
        runtime.memcpyAsync(dst, src, size, kind, _handle(stream))


def _address(mem: Any) -> int:
    return mem if isinstance(mem, int) else int(mem.value)


def _handle(stream: Any) -> int:
    return int((get_current_stream() if stream is None else stream).ptr)


class MemoryPool:
    """The pool's face; what it holds is the module's."""

    def malloc(self, size: int) -> MemoryPointer:
        return _pooled(size)

    def free_all_blocks(self, stream: Any = None) -> None:
        pass

    def used_bytes(self) -> int:
        return 0


_allocator: Callable[[int], MemoryPointer] | None = _pooled


def alloc(size: int) -> MemoryPointer:
    """Return memory of the current device, for the current stream."""
    if size == 0:
        empty = BaseMemory()
        empty.device_id = runtime.getDevice()
        return MemoryPointer(empty, 0)
    return malloc(size) if _allocator is None else _allocator(size)


def malloc(size: int) -> MemoryPointer:
    return MemoryPointer(Memory(size), 0)


_malloc = malloc


def set_allocator(allocator: Any = None) -> None:
    global _allocator
    _allocator = allocator


def get_allocator() -> Any:
    return _allocator or malloc


def begins_allocation(ptr: int) -> bool:
    """Tell whether an address is the first of its allocation."""
    found = _ranges.find(ptr)
    return found is not None and found.low == ptr
