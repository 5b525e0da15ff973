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
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

ALIGNMENT = 128  # two cache lines: the hardware fetches neighbours in pairs
PAGE = mmap.PAGESIZE
WHOLE_PAGES = 1 << 16  # from here on a piece has its pages for itself
LARGE = 1 << 24  # so much is not asked for without a look at what there is
CONTROL_GROUPS = Path("/sys/fs/cgroup")


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
