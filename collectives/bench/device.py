"""Arrays in the memory of a GPU, for a benchmark: made, awaited, described.

What NumPy and CuPy do alike stands where it stood for arrays on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collectives.communicator import Communicator
from collectives.gpu.arrays import cupy

__all__ = [
    "allocate",
    "available_bytes",
    "describe",
    "like",
    "refused",
    "settle",
    "use",
]


def use(comm: Communicator) -> None:
    """Make one GPU this rank's own, counted by its place among those of the host.

    Raises:
        UnsupportedError: there is no CuPy, or no GPU that it can use.
    """
    runtime = cupy().cuda.runtime
    runtime.setDevice(comm.topology.local_rank % runtime.getDeviceCount())


def allocate(nbytes: int, dtype: str) -> Any:
    """Return a CuPy array of `nbytes`, rounded down to whole elements, all zero."""
    return cupy().zeros(nbytes // np.dtype(dtype).itemsize, dtype)


def available_bytes(comm: Communicator) -> int:
    """Return the memory that this rank's GPU can give it and those who share it."""
    runtime = cupy().cuda.runtime
    sharing = -(-comm.topology.local_size // int(runtime.getDeviceCount()))
    free, _ = runtime.memGetInfo()
    return int(free) // sharing


def describe() -> str:
    """Say how the buffers were made."""
    module = cupy()
    properties = module.cuda.runtime.getDeviceProperties(module.cuda.Device().id)
    return f"cupy.zeros on {properties['name'].decode()}, touched by the owner"


def like(array: Any, host: Any) -> Any:
    """Return a host array as one that can be combined with `array`."""
    return host if isinstance(array, np.ndarray) else cupy().asarray(host)


def settle(array: Any) -> None:
    """Wait for what is queued on the stream of a CuPy array; nothing on the host."""
    if not isinstance(array, np.ndarray):
        cupy().cuda.get_current_stream().synchronize()


def refused(comm: Communicator, way: str, array: Any) -> str:
    """Return why a way is closed to all ranks, empty if it is not. Collective."""
    comm._open_gpus(array)
    gpus = comm._group.gpus
    return "" if gpus is None or comm.size == 1 else gpus.refusals.get(way, "")
