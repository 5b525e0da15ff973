"""Device memory that the processes of a host open to each other (CUDA IPC).

A process exports an allocation as a *handle* of 64 bytes; another process that opens it
gets a pointer, and its kernels and copies read and write there: on the same GPU the
very same memory, on another one over NVLink or PCIe. What has to be observed:

* A handle stands for a whole allocation of `cudaMalloc`, which may put several small
  ones into one block. So each of ours is a multiple of 2 MiB, and none comes from a
  pool: memory of CuPy's pool would be exported together with its neighbours, that of
  `cudaMallocAsync`, managed memory and torch's expandable segments cannot be at all.
* A process cannot open its own handles.
* Nobody may free what others have open: they close it, they say so, then it is freed.
* Events are not shared here: a rank waits for its own stream before it tells the others
  to go on (algorithms/cuda_ipc.py).

Processes in other containers are not asked: there the driver finds no peer, or a wrong
one. Between the instances of a divided GPU (MIG) opening fails, which is an answer.
"""

from __future__ import annotations

import os
import secrets
import struct
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from collectives.gpu.arrays import cupy
from collectives.kernels import Array

BLOCK_BYTES = 2 << 20
NAMESPACES = ("ipc", "pid")

_offer = struct.Struct("<16sqqqq64s")
_numbers = count(1)
_token: tuple[int, bytes] = (0, b"")


def _process() -> bytes:
    """Return what no other process has, not even a child of this one."""
    global _token
    if _token[0] != os.getpid():
        _token = os.getpid(), secrets.token_bytes(16)
    return _token[1]


def namespaces() -> bytes:
    """Return in which of the system's namespaces this process is."""
    names = []
    for kind in NAMESPACES:
        try:
            names.append(os.readlink(f"/proc/self/ns/{kind}"))
        except OSError:
            names.append("")
    return " ".join(names).encode()


@dataclass(frozen=True)
class Exported:
    """An allocation of this process that others may open."""

    number: int
    """No two of a process have the same."""
    pointer: int
    nbytes: int
    device: int
    """The GPU that it lies on, as this process counts them."""
    handle: bytes

    @property
    def offer(self) -> bytes:
        """What another process needs to open it."""
        numbers = self.number, self.pointer, self.nbytes, self.device
        return _offer.pack(_process(), *numbers, self.handle)


def export(nbytes: int) -> Exported:
    """Allocate at least `nbytes` on the current device, to be opened by others.

    Raises:
        CUDARuntimeError: there is no memory, or it cannot be exported here.
    """
    xp = cupy()
    runtime = xp.cuda.runtime
    nbytes = max(1, -(-nbytes // BLOCK_BYTES)) * BLOCK_BYTES
    try:
        pointer = runtime.malloc(nbytes)
    except runtime.CUDARuntimeError:  # CuPy's pool may keep what nobody uses
        xp.get_default_memory_pool().free_all_blocks()
        pointer = runtime.malloc(nbytes)
    try:
        handle = runtime.ipcGetMemHandle(pointer)
    except Exception:
        runtime.free(pointer)
        raise
    return Exported(next(_numbers), pointer, nbytes, runtime.getDevice(), handle)


def free(memory: Exported) -> None:
    """Give an allocation back; nobody has it open any more.

    Waits for what is queued on the device: it may still use the memory.
    """
    xp = cupy()
    with xp.cuda.Device(memory.device) as device:
        device.synchronize()
        xp.cuda.runtime.free(memory.pointer)


class Opened:
    """A peer's allocation, as kernels of this process see it on the current device."""

    def __init__(self, offer: bytes) -> None:
        """Open what `Exported.offer` tells of.

        Raises:
            CUDARuntimeError: this process cannot reach it.
            OSError: its GPU is another one of this process, and not within reach.
        """
        runtime = cupy().cuda.runtime
        process, self.number, pointer, self.nbytes, device, handle = _offer.unpack(
            offer
        )
        self.device = runtime.getDevice()
        self._own = process == _process()
        """Whether it is this very process's: then it is simply there."""
        if self._own:
            _reach(self.device, device)
        self.pointer = pointer if self._own else runtime.ipcOpenMemHandle(handle)

    def close(self) -> None:
        """Let go of it; may be called twice."""
        if self._own or not self.pointer:
            return
        xp, pointer = cupy(), self.pointer
        self.pointer = 0
        with xp.cuda.Device(self.device):
            xp.cuda.runtime.ipcCloseMemHandle(pointer)


def _reach(device: int, other: int) -> None:
    """Let kernels of one GPU of this process use the memory of another one."""
    runtime = cupy().cuda.runtime
    if device == other:
        return
    if not runtime.deviceCanAccessPeer(device, other):
        raise OSError(f"GPU {device} has no access to the memory of GPU {other}")
    try:
        runtime.deviceEnablePeerAccess(other)
    except runtime.CUDARuntimeError as error:
        if "AlreadyEnabled" not in str(error):
            raise


def array_at(
    memory: Exported | Opened,
    offset: int,
    dtype: np.dtype[Any],
    size: int,
    keep: object = None,
) -> Array:
    """Return a flat device array of some memory; it and its views hold on to `keep`."""
    xp = cupy()
    device = memory.device
    whole = xp.cuda.UnownedMemory(memory.pointer, memory.nbytes, keep, device)
    array: Array = xp.ndarray((size,), dtype, xp.cuda.MemoryPointer(whole, offset))
    return array
