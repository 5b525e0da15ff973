"""Pinned host memory, and a pool of it that reuses a piece as soon as it is let go."""

import ctypes
from collections import defaultdict
from typing import Any

from cupy import _engine
from cupy._misuse import note
from cupy.cuda import runtime

UNIT = 512


class PinnedMemory:
    def __init__(self, size: int, flags: int = 0) -> None:
        self.size = size
        self.ptr = runtime.hostAlloc(size, flags) if size else 0

    def __int__(self) -> int:
        return self.ptr


class PooledPinnedMemory(PinnedMemory):
    def __init__(self, size: int) -> None:
        idle = _free[size]
        self.size = size
        self.ptr = idle.pop() if idle else runtime.hostAlloc(size, 0)

    def free(self) -> None:
        if not self.ptr:
            return
        ptr, self.ptr = self.ptr, 0
        with _engine.LOCK:
            for work in _engine.unordered((ptr, ptr + self.size)):
                if not work.done:
                    note(f"pinned memory is let go while {work} is pending on it")
            _free[self.size].append(ptr)

    def __del__(self) -> None:
        if _free is not None:
            self.free()


_free: dict[int, list[int]] = defaultdict(list)


class _Pointer:
    """What a `PinnedMemoryPointer` is beside a buffer of bytes."""

    mem: Any
    ptr: int

    def __int__(self) -> int:
        return self.ptr

    def size(self) -> int:
        return int(self.mem.size - (self.ptr - self.mem.ptr))

    def __add__(self, offset: int) -> Any:
        return PinnedMemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def __sub__(self, offset: int) -> Any:
        return self + -offset


_types: dict[int, Any] = {}


def PinnedMemoryPointer(mem: Any, offset: int) -> Any:
    """Return a pointer that is also a buffer of the bytes from there on."""
    left = mem.size - offset
    if left not in _types:
        array = ctypes.c_byte * left
        _types[left] = type("PinnedMemoryPointer", (_Pointer, array), {})
    found = _types[left].from_address(mem.ptr + offset) if left else _types[left]()
    found.mem, found.ptr = mem, mem.ptr + offset
    return found


def alloc_pinned_memory(size: int) -> Any:
    if size == 0:
        return PinnedMemoryPointer(PinnedMemory(0), 0)
    return PinnedMemoryPointer(PooledPinnedMemory(-(-size // UNIT) * UNIT), 0)


class PinnedMemoryPool:
    def malloc(self, size: int) -> Any:
        return alloc_pinned_memory(size)

    def free_all_blocks(self) -> None:
        pass

    def n_free_blocks(self) -> int:
        return sum(map(len, _free.values()))
