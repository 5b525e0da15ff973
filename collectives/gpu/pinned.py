"""Host memory that the GPU copies from and to by itself: pinned, and shared if it can.

On one host it is a registered array (registered.py) that the driver has pinned: what
the device copies there is read by the peers in place, and no byte is moved twice. To
pin memory takes milliseconds, so a group keeps what it has pinned.
"""

from __future__ import annotations

import math
import os
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from collectives import registered
from collectives.arena import Arena
from collectives.errors import UnsupportedError
from collectives.gpu.arrays import cupy
from collectives.kernels import Array

LEAST = 1 << 16


class Buffer(NamedTuple):
    """Pinned memory, as bytes."""

    memory: Array
    shared: bool
    """Whether the ranks of the host share it, and so we have to unpin it."""


class Pinned:
    """The pinned memory of a group, used anew by each call."""

    def __init__(self, arena: Arena | None) -> None:
        """Take memory from `arena` where there is one."""
        self._arena = arena
        self._buffers: list[Buffer] = []
        self._taken = 0

    def begin(self) -> None:
        """Give out from the beginning again: what was given out before is void."""
        self._taken = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array of pinned memory that lasts until `begin`.

        Raises:
            MemoryError: the machine has no memory for it.
        """
        nbytes, place = math.prod(shape) * dtype.itemsize, self._taken
        if place == len(self._buffers):
            self._buffers.append(self._new(nbytes))
        elif self._buffers[place].memory.size < nbytes:
            _unpin(self._buffers[place])
            self._buffers[place] = self._new(nbytes)
        self._taken += 1
        memory = self._buffers[place].memory[:nbytes]
        array: Array = memory.view(dtype).reshape(shape)
        return array

    def close(self) -> None:
        """Give all of it up; may be called twice."""
        buffers, self._buffers = self._buffers, []
        for buffer in buffers:
            _unpin(buffer)

    def _new(self, nbytes: int) -> Buffer:
        room = 1 << (max(nbytes, LEAST) - 1).bit_length()  # a little more fits as well
        return pinned(self._arena, room)


def empty(arena: Arena | None, shape: Any, dtype: Any) -> Array:
    """Return a registered array that is pinned as well; its own pages are.

    Raises:
        MemoryError: the machine has no memory for it.
        UnsupportedError: there is no GPU, or the elements are Python objects.
    """
    like: Array = np.broadcast_to(np.empty((), dtype), shape)
    if like.dtype.hasobject:
        raise UnsupportedError(f"dtype {like.dtype}; wanted numbers")
    memory, shared = pinned(arena, max(LEAST, like.nbytes))
    if shared:
        weakref.finalize(
            memory, _unregister, memory.ctypes.data, os.getpid()
        ).atexit = False
    array: Array = memory[: like.nbytes].view(like.dtype).reshape(like.shape)
    return array


def pinned(arena: Arena | None, nbytes: int) -> Buffer:
    """Pin memory, of the arena if the driver lets us."""
    runtime = cupy().cuda.runtime
    if arena is not None:
        shared = registered.empty(arena, (nbytes,), np.uint8)
        # Where the driver, or the limit on locked memory, does not allow it.
        with suppress(runtime.CUDARuntimeError):
            runtime.hostRegister(shared.ctypes.data, nbytes, 0)
            return Buffer(shared, True)
    memory = cupy().cuda.alloc_pinned_memory(nbytes)
    return Buffer(np.frombuffer(memory, np.uint8, nbytes), False)


def _unregister(address: int, process: int) -> None:
    if os.getpid() == process:  # a forked child has no CUDA
        with suppress(Exception):
            cupy().cuda.runtime.hostUnregister(address)


def _unpin(buffer: Buffer) -> None:
    if buffer.shared:
        cupy().cuda.runtime.hostUnregister(buffer.memory.ctypes.data)
