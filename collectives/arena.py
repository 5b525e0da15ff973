"""Memory shared by the ranks of a host.

An arena is one anonymous file (`memfd_create`) that every rank of the host maps. It is
not an MPI window: those live in /dev/shm, whose size containers limit to 64 MB, and
die by SIGBUS when it is full. Here space is reserved (`posix_fallocate`) before anybody
touches it, and nothing is left behind after a kill.

Each local rank owns a *heap* in the arena and carves from it; it tells the others the
offset. So any subset of ranks can make something shared without asking the rest, and
memory lies near the rank that has carved it. The file is sparse: heaps are as large as
the memory of the machine, and cost only what is carved from them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import secrets
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, Protocol

_open = os.open
ALIGNMENT = 128  # two cache lines: the hardware fetches neighbours in pairs
PAGE = mmap.PAGESIZE
WHOLE_PAGES = 1 << 16  # from here on a piece has its pages for itself
TOKEN_BYTES = 16
MOST_BYTES = 1 << 44  # of address space, all heaps together
SMALL_HEAP = 1 << 26  # where address space is limited (`ulimit -v`)
LARGE = 1 << 24  # so much is not asked for without a look at what there is
CONTROL_GROUPS = Path("/sys/fs/cgroup")


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
        self,
        memory: mmap.mmap,
        rank: int,
        heap_bytes: int,
        descriptor: int = -1,
    ) -> None:
        """Take `memory` of ranks x `heap_bytes`; this rank's heap is number `rank`.

        `descriptor` is the file behind it, to reserve space in; the arena closes it.
        """
        self.memory = memory
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._view = memoryview(memory)
        self._descriptor = descriptor
        start = rank * heap_bytes
        self._free = [(start, start + heap_bytes)]
        self._carved: dict[int, int] = {}
        self._let_go: deque[int] = deque()
        self._lock = threading.RLock()  # communicators of several threads share a heap
        self.used_bytes = 0
        """Bytes that are carved from this rank's heap at the moment."""

    def carve(self, nbytes: int) -> int:
        """Reserve `nbytes`, all zero, of this rank's heap and return the offset.

        Raises:
            MemoryError: the heap has no gap of that size, or the machine no memory.
        """
        with self._lock:
            while self._let_go:
                self.release(self._let_go.popleft())
            return self._carve(nbytes)

    def _carve(self, nbytes: int) -> int:
        unit = PAGE if nbytes >= WHOLE_PAGES else ALIGNMENT
        wanted = max(1, -(-nbytes // unit)) * unit
        for index, (low, high) in enumerate(self._free):
            start = -(-low // unit) * unit
            if high - start >= wanted:
                self._reserve(start, wanted)
                gaps = [(low, start), (start + wanted, high)]
                self._free[index : index + 1] = [gap for gap in gaps if gap[0] < gap[1]]
                self._carved[start] = start + wanted
                self.used_bytes += wanted
                return start
        raise MemoryError(f"arena heap has no room for {nbytes} bytes")

    def release(self, offset: int) -> None:
        """Give back what `carve` returned; the space may be handed out again."""
        with self._lock:
            self._release(offset)

    def _release(self, offset: int) -> None:
        end = self._carved.pop(offset)
        self.used_bytes -= end - offset
        if end - offset >= WHOLE_PAGES:
            self._give_back(offset, end - offset)
        merged: list[tuple[int, int]] = []
        for low, high in sorted([*self._free, (offset, end)]):
            if merged and merged[-1][1] == low:
                merged[-1] = (merged[-1][0], high)
            else:
                merged.append((low, high))
        self._free = merged

    def let_go(self, offset: int) -> None:
        """Release at the next `carve`; may be called by a finalizer, at any moment."""
        self._let_go.append(offset)

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Return the bytes at an offset, in any rank's heap."""
        return self._view[offset : offset + nbytes]

    def _reserve(self, start: int, nbytes: int) -> None:
        """Make sure that there is memory, all zero, behind a gap of the heap."""
        if self._descriptor >= 0:
            left = available_bytes() if nbytes >= LARGE else nbytes
            if nbytes > left:
                raise MemoryError(
                    f"no memory for {nbytes} bytes to be shared: {left} are left"
                )
            try:
                os.posix_fallocate(self._descriptor, start, nbytes)
            except OSError as error:
                raise MemoryError(
                    f"no memory for {nbytes} bytes to be shared: {error.strerror}"
                ) from None
        if nbytes < WHOLE_PAGES:
            self._view[start : start + nbytes] = bytes(nbytes)

    def _give_back(self, start: int, nbytes: int) -> None:
        """Return whole pages to the system; whoever gets them next finds zeros."""
        if hasattr(mmap, "MADV_REMOVE"):
            with suppress(OSError):
                self.memory.madvise(mmap.MADV_REMOVE, start, nbytes)
                return
        for low in range(start, start + nbytes, WHOLE_PAGES):
            high = min(low + WHOLE_PAGES, start + nbytes)
            self._view[low:high] = bytes(high - low)

    def close(self) -> None:
        """Let go of the mapping; may be called twice.

        The memory itself stays until the last array in it is gone, so that whoever
        holds one may go on reading it (an MPI window would crash). To close the mapping
        would take it away from them: NumPy does not tell it that it is being used.
        """
        self._view.release()
        self.__dict__.pop("memory", None)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def available_bytes() -> int:
    """Return how many bytes of memory may be asked for without being killed for it.

    A file in memory grows until somebody must die: the system says no only to what is
    larger than the whole machine.
    """
    found = re.search(r"MemAvailable:\s+(\d+) kB", _text(Path("/proc/meminfo")))
    left = int(found[1]) << 10 if found else 1 << 62
    limit = _text(CONTROL_GROUPS / "memory.max").strip()
    if limit.isdigit():  # the one of this container
        cached = re.search(
            r"^inactive_file (\d+)$", _text(CONTROL_GROUPS / "memory.stat"), re.M
        )
        used = int(_text(CONTROL_GROUPS / "memory.current") or 0)
        left = min(left, int(limit) - used + (int(cached[1]) if cached else 0))
    return max(0, left - left // 16)


def _text(path: Path) -> str:
    """Return what is in a file; nothing if there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def private_arena(ranks: int, heap_bytes: int) -> list[Arena]:
    """Return one arena per rank for ranks that are threads of this process."""
    memory = mmap.mmap(-1, ranks * heap_bytes)
    return [Arena(memory, rank, heap_bytes) for rank in range(ranks)]


def heap_sizes(ranks: int) -> list[int]:
    """Return the sizes of a heap to be tried, the largest first."""
    machine = os.sysconf("SC_PHYS_PAGES") * PAGE
    most = 1 << (MOST_BYTES // ranks).bit_length() - 1
    return [min(1 << machine.bit_length(), most), SMALL_HEAP]


def shared_arena(
    ranks: LocalRanks, sizes: list[int] | None = None
) -> tuple[Arena | None, str]:
    """Map one arena over the ranks of this host; collective over them.

    Args:
        ranks: those of this host.
        sizes: bytes of a heap to be tried, one after the other.

    Returns:
        The arena and how it was made, or None and the reason why there is none: the
        same on every rank.
    """
    sizes = ranks.broadcast(sizes or heap_sizes(ranks.size))
    reasons = []
    for (name, create), heap_bytes in product(BACKINGS.items(), sizes):
        arena, reason = _try_backing(create, ranks, heap_bytes)
        if arena is not None:
            return arena, name
        reasons.append(f"{name}: {reason}")
    return None, "; ".join(dict.fromkeys(reasons))


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
            os.pwrite(descriptor, token, nbytes - TOKEN_BYTES)
        except OSError as error:
            reason = str(error)
    path, token, reason = ranks.broadcast((path, token, reason))
    arena = None
    if path:
        try:
            if ranks.rank > 0:
                descriptor = _open(path, os.O_RDWR)
            memory = _map(descriptor, nbytes, token)
            mapped = Arena(memory, ranks.rank, heap_bytes, descriptor)
            mapped.release(mapped.carve(1))  # a full memory shows here, not later
            arena = mapped
        except (OSError, MemoryError) as error:
            reason = f"{path}: {error}"
    fine = ranks.all(arena is not None)
    if ranks.rank == 0 and path and not path.startswith("/proc/"):
        os.unlink(path)
    if fine and arena is not None:
        return arena, ""
    if arena is not None:
        arena.close()
    elif descriptor >= 0:
        os.close(descriptor)
    return None, ranks.broadcast(reason) or "another rank of this host could not map it"


def _map(descriptor: int, nbytes: int, token: bytes) -> mmap.mmap:
    """Map the file, and make sure by its token that it is the one rank 0 made."""
    if os.pread(descriptor, TOKEN_BYTES, nbytes - TOKEN_BYTES) != token:
        raise OSError("is another file than the one that local rank 0 made")
    memory = mmap.mmap(descriptor, nbytes)
    if hasattr(mmap, "MADV_DONTDUMP"):
        with suppress(OSError):  # a core file need not hold terabytes of nothing
            memory.madvise(mmap.MADV_DONTDUMP)
    return memory


def _anonymous_file(nbytes: int) -> tuple[int, str]:
    """Make an anonymous file that peers open through /proc."""
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no memfd_create")
    return _sized(os.memfd_create("ringfold"), nbytes, "/proc/{pid}/fd/{fd}")


def _shm_file(nbytes: int) -> tuple[int, str]:
    """Make a file in /dev/shm, unlinked as soon as everybody has mapped it."""
    path = f"/dev/shm/ringfold-{os.getpid()}-{secrets.token_hex(4)}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        return _sized(os.open(path, flags, 0o600), nbytes, path)
    except OSError:
        if os.path.exists(path):
            os.unlink(path)
        raise


def _sized(descriptor: int, nbytes: int, path: str) -> tuple[int, str]:
    """Give the file its size, without any memory behind it yet."""
    try:
        os.ftruncate(descriptor, nbytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, path.format(pid=os.getpid(), fd=descriptor)


BACKINGS: dict[str, Callable[[int], tuple[int, str]]] = {
    "memfd": _anonymous_file,
    "/dev/shm": _shm_file,
}
