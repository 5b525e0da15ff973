"""How the ranks of a pretended NCCL communicator find each other and pass bytes.

All is in one folder that the unique id names: a table with a line of numbers a rank,
mapped by all, and a file for what one rank gives to one call.
"""

import atexit
import ctypes
import glob
import mmap
import os
import pickle
import shutil
import tempfile
from contextlib import suppress
from typing import Any

BASE = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
PREFIX = "cupy-double-nccl-"
FIELDS = 8
PID, DONE, OVER, UUID, UUID_2 = range(5)
MOST = 512
"""Ranks that a table has room for."""


def new_name() -> bytes:
    """Return what names a folder; folders that nobody uses any more are removed."""
    for folder in glob.glob(f"{BASE}/{PREFIX}*"):
        with suppress(OSError):
            table = _Table(folder, create=False)
            pids = [table[rank, PID] for rank in range(MOST) if table[rank, PID]]
            if pids and not any(map(alive, pids)):
                shutil.rmtree(folder, ignore_errors=True)
    return f"{PREFIX}{os.getpid()}-{os.urandom(8).hex()}".encode()


class _Table:
    def __init__(self, folder: str, *, create: bool) -> None:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        fd = os.open(f"{folder}/table", flags, 0o600)
        try:
            if create:
                os.ftruncate(fd, MOST * FIELDS * 8)
            self._map = mmap.mmap(fd, MOST * FIELDS * 8)
        finally:
            os.close(fd)
        self._words = (ctypes.c_int64 * (MOST * FIELDS)).from_buffer(self._map)

    def __getitem__(self, place: tuple[int, int]) -> int:
        return int(self._words[place[0] * FIELDS + place[1]])

    def __setitem__(self, place: tuple[int, int], value: int) -> None:
        self._words[place[0] * FIELDS + place[1]] = value


class Meeting:
    """One rank's view of the folder."""

    def __init__(self, name: bytes, rank: int, size: int, uuid: bytes) -> None:
        self.folder = f"{BASE}/{name.decode()}"
        self.rank, self.size = rank, size
        os.makedirs(self.folder, exist_ok=True)
        self.table = _Table(self.folder, create=True)
        self.table[rank, UUID] = int.from_bytes(uuid[:7], "little")
        self.table[rank, UUID_2] = int.from_bytes(uuid[7:14], "little")
        self.table[rank, PID] = os.getpid()
        self._mine: list[tuple[int, str]] = []
        atexit.register(self.leave)

    def complete(self) -> bool:
        """Tell whether all ranks are here."""
        return all(self.table[rank, PID] for rank in range(self.size))

    def doubled(self) -> bool:
        """Tell whether two ranks are on one device."""
        devices = {
            (self.table[r, UUID], self.table[r, UUID_2]) for r in range(self.size)
        }
        return len(devices) < self.size

    def lost(self) -> list[int]:
        """Return the ranks whose process has ended."""
        return [r for r in range(self.size) if not alive(self.table[r, PID])]

    def give(self, key: str, signature: Any, octets: bytes, number: int = -1) -> None:
        """Put something where others find it; with a number until all are past it."""
        path = f"{self.folder}/{key}"
        with open(f"{path}.new", "wb") as file:
            pickle.dump(signature, file)
            file.write(octets)
        os.rename(f"{path}.new", path)
        if number >= 0:
            self._mine.append((number, path))

    def there(self, key: str) -> bool:
        return os.path.exists(f"{self.folder}/{key}")

    def take(self, key: str, *, remove: bool = False) -> tuple[Any, bytes]:
        """Return what was given."""
        path = f"{self.folder}/{key}"
        with open(path, "rb") as file:
            signature = pickle.load(file)
            octets = file.read()
        if remove:
            os.unlink(path)
        return signature, octets

    def done(self, number: int) -> None:
        """Say that calls below this number are over here."""
        self.table[self.rank, DONE] = number
        everywhere = min(self.table[r, DONE] for r in range(self.size))
        while self._mine and self._mine[0][0] < everywhere:
            os.unlink(self._mine.pop(0)[1])

    def leave(self) -> None:
        """Leave; the last one removes the folder."""
        atexit.unregister(self.leave)
        self.table[self.rank, OVER] = 1
        pids = [self.table[r, PID] for r in range(self.size)]
        over = [self.table[r, OVER] for r in range(self.size)]
        if all(o or (p and not alive(p)) for o, p in zip(over, pids, strict=True)):
            shutil.rmtree(self.folder, ignore_errors=True)


def alive(pid: int) -> bool:
    """Tell whether a process runs; a dead one that nobody has buried does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
