"""Blocks of device memory: anonymous files, which other processes open by a handle.

The first page of a block says how it fares: whether its owner has freed it, and how
many processes have it open. It is shared, so each side sees what the other does.
"""

import ctypes
import fcntl
import mmap
import os
import struct

from cupy._config import CONFIG
from cupy._misuse import Misuse, note

PAGE = mmap.PAGESIZE
HANDLE = struct.Struct("<4sqqqqii20x")
MAGIC = b"dblh"
POISON = 0xCB
"""What fresh memory holds; no test expects it."""


class Block:
    """Memory of one device, in this process or opened from another."""

    def __init__(self, fd: int, size: int, device: int, place: int) -> None:
        self.fd, self.size, self.device, self.place = fd, size, device, place
        self._map = mmap.mmap(fd, size + PAGE)
        self._head = (ctypes.c_int64 * 4).from_buffer(self._map)
        self.address = ctypes.addressof(self._head) + PAGE

    @classmethod
    def make(cls, size: int, device: int) -> "Block":
        """Allocate."""
        fd = os.memfd_create("cupy-double", os.MFD_CLOEXEC)
        os.ftruncate(fd, size + PAGE)
        block = cls(fd, size, device, CONFIG.visible[device])
        block._head[0] = block.address
        if size <= 1 << 20:
            ctypes.memset(block.address, POISON, size)
        return block

    @property
    def handle(self) -> bytes:
        """Return 64 bytes by which another process of this host opens the block."""
        return HANDLE.pack(
            MAGIC,
            os.getpid(),
            self.fd,
            self.size,
            self.address,
            self.place,
            CONFIG.host,
        )

    @classmethod
    def open(cls, handle: bytes) -> "Block":
        """Open another process's block."""
        magic, pid, fd, size, address, place, host = HANDLE.unpack(handle)
        if magic != MAGIC or host != CONFIG.host:
            raise ValueError("this is no handle of a process on this host")
        mine = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
        if os.fstat(mine).st_size != size + PAGE:
            os.close(mine)
            raise ValueError("the handle's memory is another one by now")
        device = CONFIG.visible.index(place) if place in CONFIG.visible else 0
        block = cls(mine, size, device, place)
        if block._head[0] != address:
            raise ValueError("the handle's memory is another one by now")
        if block._head[1]:
            raise Misuse("an IPC handle is opened after its memory was freed")
        block._count(+1)
        return block

    def check(self, what: str) -> None:
        """Object to the use of memory whose owner has freed it."""
        if self._head[1]:
            raise Misuse(f"{what} touches memory that its owner has freed")

    def close(self) -> None:
        """Close what was opened."""
        self._count(-1)
        os.close(self.fd)

    def _count(self, change: int) -> None:
        """Change how many processes have it open; several may at once."""
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        self._head[2] += change
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def free(self) -> None:
        """Give the memory back; its addresses stay taken, so that a use is noticed."""
        if self._head[2] > 0:
            note(f"memory is freed that {self._head[2]} other processes have open")
        self._head[1] = 1
        os.close(self.fd)
        if self.size >= PAGE:  # the first page is kept: others look into it
            self._map.madvise(mmap.MADV_REMOVE, PAGE, self.size)


def owner_of(handle: bytes) -> int:
    """Return the process that made a handle."""
    return int(HANDLE.unpack(handle)[1])
