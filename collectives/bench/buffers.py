"""The memory of a benchmark, got in one fixed way for every algorithm.

The raw call's time moves by up to 1.7 times with the page size of its buffers, and what
`numpy.empty` returns depends on what the process did before. So each buffer is one
private anonymous mapping, begins at a boundary of huge pages, asks for huge pages as
NumPy itself does for large arrays, and is touched by its owner before it is used.
"""

from __future__ import annotations

import mmap
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["HUGE_PAGE", "allocate", "available_bytes", "describe", "huge_bytes"]

HUGE_PAGE = 2 << 20


def allocate(nbytes: int, dtype: str) -> NDArray[Any]:
    """Return an array of `nbytes`, rounded down to whole elements, all touched."""
    mapping = mmap.mmap(
        -1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel without huge pages refuses; the header will say that we got none.
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapping, np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    whole = nbytes // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize
    array: NDArray[Any] = memory[start : start + whole].view(dtype)
    array.fill(0)
    return array


def huge_bytes(array: NDArray[Any]) -> int:
    """Return how much of an array lies in huge pages, as the kernel tells."""
    try:
        text = Path("/proc/self/smaps").read_text()
    except OSError:
        return 0
    start, end = array.ctypes.data, array.ctypes.data + array.nbytes
    total = 0
    for low, high, body in re.findall(
        r"^([0-9a-f]+)-([0-9a-f]+) (.*?)(?=^[0-9a-f]+-[0-9a-f]+ |\Z)", text, re.M | re.S
    ):
        if int(low, 16) < end and int(high, 16) > start:
            found = re.search(r"^AnonHugePages:\s+(\d+) kB", body, re.M)
            total += int(found[1]) << 10 if found else 0
    return min(total, array.nbytes)


def available_bytes() -> int | None:
    """Return the memory that this host can still give; None where it will not say."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.M)
    return int(found[1]) << 10 if found else None


def describe(array: NDArray[Any]) -> str:
    """Say how the buffers were made and what the kernel gave."""
    share = huge_bytes(array) / array.nbytes
    return (
        "private anonymous mmap, 2 MiB aligned, MADV_HUGEPAGE, touched by the owner; "
        f"{share:.0%} in huge pages"
    )
