"""Shared memory of a host: how much, of what kind, and what dead jobs left in it."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectives.backing import shared_arena

SHM = Path("/dev/shm")

# Beginnings of file names in /dev/shm, and whose they are.
OWNERS = {
    "mpich_shm_": "MPICH",
    "sm_segment.": "Open MPI",
    "vader_segment.": "Open MPI",
    "Intel_MPI_": "Intel MPI",
    "ucx_shm_": "UCX",
    "psm2_shm": "PSM2",
    "nccl-": "NCCL",
    "ringfold-": "Ringfold",
}


@dataclass(frozen=True)
class MemoryFacts:
    """Shared memory of this host, in bytes; `arena` says how Ringfold gets its own."""

    shm_total: int
    shm_free: int
    arena: str
    leftovers: dict[str, int] = field(default_factory=dict)  # file name -> bytes


class _Alone:
    """The only rank of its host, for trying out an arena."""

    rank, size = 0, 1

    def broadcast(self, value: Any) -> Any:
        return value

    def all(self, fine: bool) -> bool:
        return fine


def memory_facts(*, look_for_leftovers: bool) -> MemoryFacts:
    """Return what this host offers, after trying to make an arena in it."""
    arena, how = shared_arena(_Alone())
    if arena is not None:
        arena.close()
    try:
        status = os.statvfs(SHM)
    except OSError:
        return MemoryFacts(0, 0, how)
    return MemoryFacts(
        shm_total=status.f_blocks * status.f_frsize,
        shm_free=status.f_bavail * status.f_frsize,
        arena=how,
        leftovers=leftovers(SHM) if look_for_leftovers else {},
    )


def leftovers(folder: Path, *, older_than_s: float = 10.0) -> dict[str, int]:
    """Return files of ended MPI jobs and their bytes: mine, and mapped by nobody.

    Files of other users are left out because their processes cannot be looked at, and
    young ones because somebody may be about to map them.
    """
    old = time.time() - older_than_s
    candidates = {}
    for path in folder.glob("*"):
        try:
            status = path.stat()
        except OSError:  # gone in the meantime
            continue
        is_mine = status.st_uid == os.geteuid() and status.st_mtime < old
        if is_mine and path.name.startswith(tuple(OWNERS)):
            candidates[path.name] = status.st_blocks * 512
    if not candidates:
        return {}
    mapped = _mapped_files()
    return {
        name: nbytes
        for name, nbytes in sorted(candidates.items())
        if str(folder / name) not in mapped
    }


def _mapped_files() -> set[str]:
    """Return the paths that the processes which we may look at have mapped."""
    paths: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:
            continue
        paths.update(line.split(maxsplit=5)[5] for line in lines if "/" in line)
    return paths
