"""Memory shared by the ranks of a host.

An arena is one anonymous file (`memfd_create`) that every rank of the host maps. It is
not an MPI window: those live in /dev/shm, whose size containers limit to 64 MB, and
die by SIGBUS when it is full. Here the space is reserved (`posix_fallocate`) before
anybody touches it, the verdict is agreed by all ranks, and nothing is left behind after
a kill.

Each local rank owns a *heap* in the arena and carves from it; it tells the others the
offset. So any subset of ranks can make something shared without asking the rest.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable
from typing import Any, Protocol

ALIGNMENT = 128  # two cache lines: the hardware fetches neighbours in pairs
TOKEN_BYTES = 16


class LocalRanks(Protocol):
    """The ranks of one host while an arena is being made."""

    rank: int
    size: int

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value everywhere."""

    def all(self, fine: bool) -> bool:
        """Tell whether all ranks are fine."""


class Arena:
    """A mapping shared by the ranks of a host, and this rank's heap in it."""

    def __init__(
        self, memory: mmap.mmap | bytearray, rank: int, heap_bytes: int
    ) -> None:
        """Take `memory` of ranks x `heap_bytes`; this rank's heap is number `rank`."""
        self._memory = memory
        self._view = memoryview(memory)
        start = rank * heap_bytes
        self._free = [(start, start + heap_bytes)]
        self._carved: dict[int, int] = {}

    def carve(self, nbytes: int) -> int:
        """Reserve `nbytes` of this rank's heap and return the offset.

        Raises:
            MemoryError: the heap has no gap of that size.
        """
        wanted = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        for index, (low, high) in enumerate(self._free):
            if high - low >= wanted:
                self._free[index] = (low + wanted, high)
                self._carved[low] = low + wanted
                self._view[low : low + wanted] = bytes(wanted)
                return low
        raise MemoryError(f"arena heap has no room for {nbytes} bytes")

    def release(self, offset: int) -> None:
        """Give back what `carve` returned; the space may be handed out again."""
        self._free.append((offset, self._carved.pop(offset)))
        merged: list[tuple[int, int]] = []
        for low, high in sorted(self._free):
            if merged and merged[-1][1] == low:
                merged[-1] = (merged[-1][0], high)
            else:
                merged.append((low, high))
        self._free = merged

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Return the bytes at an offset, in any rank's heap."""
        return self._view[offset : offset + nbytes]

    def close(self) -> None:
        """Unmap; may be called twice.

        Raises:
            BufferError: a view is still in use (instead of the crash of an MPI window).
        """
        self._view.release()
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()


def private_arena(ranks: int, heap_bytes: int) -> list[Arena]:
    """Return one arena per rank for ranks that are threads of this process."""
    memory = bytearray(ranks * heap_bytes)
    return [Arena(memory, rank, heap_bytes) for rank in range(ranks)]


def shared_arena(ranks: LocalRanks, heap_bytes: int) -> tuple[Arena | None, str]:
    """Map one arena over the ranks of this host; collective over them.

    Returns:
        The arena and how it was made, or None and the reason why there is none: the
        same on every rank.
    """
    reasons = []
    for name, create in BACKINGS.items():
        arena, reason = _try_backing(create, ranks, heap_bytes)
        if arena is not None:
            return arena, name
        reasons.append(f"{name}: {reason}")
    return None, "; ".join(reasons)


def _try_backing(
    create: Callable[[int], tuple[int, str]], ranks: LocalRanks, heap_bytes: int
) -> tuple[Arena | None, str]:
    """Let rank 0 create a file, all map it, and all agree that it is the same file."""
    nbytes = ranks.size * heap_bytes
    token = secrets.token_bytes(TOKEN_BYTES)
    descriptor, path, reason = -1, "", ""
    if ranks.rank == 0:
        try:
            descriptor, path = create(nbytes)
            os.pwrite(descriptor, token, 0)
        except OSError as error:
            reason = str(error)
    path, token, reason = ranks.broadcast((path, token, reason))
    memory = None
    if path:
        try:
            memory = _map(descriptor if ranks.rank == 0 else path, nbytes, token)
        except OSError as error:
            reason = f"{path}: {error}"
    fine = ranks.all(memory is not None)
    if ranks.rank == 0 and path:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            os.unlink(path)
    if fine and memory is not None:
        return Arena(memory, ranks.rank, heap_bytes), ""
    if memory is not None:
        memory.close()
    return None, ranks.broadcast(reason) or "another rank of this host could not map it"


def _map(source: int | str, nbytes: int, token: bytes) -> mmap.mmap:
    """Map the file, and make sure by its token that it is the one rank 0 made."""
    descriptor = os.open(source, os.O_RDWR) if isinstance(source, str) else source
    try:
        if os.pread(descriptor, TOKEN_BYTES, 0) != token:
            raise OSError("is another file than the one that local rank 0 made")
        return mmap.mmap(descriptor, nbytes)
    finally:
        if isinstance(source, str):
            os.close(descriptor)


def _anonymous_file(nbytes: int) -> tuple[int, str]:
    """Reserve an anonymous file that peers open through /proc."""
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no memfd_create")
    return _reserved(os.memfd_create("ringfold"), nbytes, "/proc/{pid}/fd/{fd}")


def _shm_file(nbytes: int) -> tuple[int, str]:
    """Reserve a file in /dev/shm, unlinked as soon as everybody has mapped it."""
    path = f"/dev/shm/ringfold-{os.getpid()}-{secrets.token_hex(4)}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        return _reserved(os.open(path, flags, 0o600), nbytes, path)
    except OSError:
        if os.path.exists(path):
            os.unlink(path)
        raise


def _reserved(descriptor: int, nbytes: int, path: str) -> tuple[int, str]:
    """Reserve the space now, so that a full memory is an error and not a SIGBUS."""
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, path.format(pid=os.getpid(), fd=descriptor)


BACKINGS: dict[str, Callable[[int], tuple[int, str]]] = {
    "memfd": _anonymous_file,
    "/dev/shm": _shm_file,
}
