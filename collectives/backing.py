"""The file behind an arena: made by one rank of a host, mapped by all of them.

It is sparse, as large as all heaps together, and has no memory yet. The verdict whether
it worked is the same on every rank.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any, Protocol

from collectives.arena import PAGE, Arena

TOKEN_BYTES = 16
MOST_BYTES = 1 << 44  # of address space, all heaps together
SMALL_HEAP = 1 << 26  # where address space is limited (`ulimit -v`)

_open = os.open


class LocalRanks(Protocol):
    """The ranks of one host while an arena is being made."""

    rank: int
    size: int

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value everywhere."""

    def all(self, fine: bool) -> bool:
        """Tell whether all ranks are fine."""


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
