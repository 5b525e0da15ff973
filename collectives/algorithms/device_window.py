"""Opening and closing a group's window in the memory of GPUs; by all its ranks.

What fails on one rank is told to all: each step ends with the same verdict everywhere,
and what has been opened by then is closed again, before anybody frees it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from collectives.algorithms.small import (
    all_gather_bytes,
    all_gather_errors,
    all_gather_rows,
)
from collectives.gpu import slice_sum, streams
from collectives.gpu.arrays import cupy
from collectives.group import Group
from collectives.kernels import kernel_for
from collectives.opening import open_window as open_host_window
from collectives.transport.cuda_ipc import (
    BLOCK_BYTES,
    Exported,
    Opened,
    export,
    free,
    namespaces,
)
from collectives.transport.device_window import DeviceWindow

R = TypeVar("R")

SLOT_BYTES = 64 << 20  # a copy of it takes longer than a hand-over; not measured here
PART = 8  # of what is left of the memory, for the slots of all ranks on a device
IPC, HIERARCHICAL = "cuda_ipc", "hierarchical"
PROBED = np.dtype(np.int64)
PROBED_SIZE = 100


def open_ipc(group: Group, timeout_s: float) -> None:
    """Make the group's windows in the memory of GPUs, one a host; by all members.

    Afterwards `group.device_window` is there, or `group.gpus.refusals` says, on all
    ranks, why there is none on some host. What the driver promises is not believed:
    each rank writes into its part, and all of a host add up what they find.
    """
    gpus = group.gpus
    assert gpus is not None, "the ranks have told each other what they have"
    if group.window is None and not group.no_window:
        open_host_window(group, timeout_s)
    with cupy().cuda.Device(gpus.device):
        window, reason = _tried(group, timeout_s)
    if window is None:
        one_host = group.topology.local_size == group.size
        gpus.refusals[IPC if one_host else HIERARCHICAL] = reason
    else:
        group.device_window = window
        group.at_close.append(window.free)


def _tried(group: Group, timeout_s: float) -> tuple[DeviceWindow | None, str]:
    """Return a window that works, or why there is none; the same on all ranks."""
    if group.window is None:
        return None, group.no_window
    places = all_gather_bytes(group, namespaces(), timeout_s)
    host_of = group.topology.host_of
    first = [host_of.index(host) for host in host_of]  # rank on the same host
    apart = [rank for rank, one in enumerate(first) if places[rank] != places[one]]
    if apart:
        peer = first[apart[0]]
        return None, f"ranks {apart} are in other containers than rank {peer}"
    window, reason = _open_window(group, _slot_bytes(group, timeout_s), timeout_s)
    if window is None:
        return None, reason
    for step in (_write, _read):
        _, reason = _all(group, partial(step, window, group), timeout_s)
        if reason:
            _close_window(group, window, timeout_s)
            return None, reason
    return window, ""


def _slot_bytes(group: Group, timeout_s: float) -> int:
    """Return how large slots may be: the same on all ranks, a small part of what is."""
    left = cupy().cuda.runtime.memGetInfo()[0]
    share = np.array([left // (PART * group.size)], np.int64)
    least = int(all_gather_rows(group, share, timeout_s).min())
    return min(SLOT_BYTES, max(1, least // BLOCK_BYTES) * BLOCK_BYTES)


def _write(window: DeviceWindow, group: Group) -> None:
    """Fill the own slot with this rank's number, from 1."""
    place = group.topology.local_rank
    window.slots(PROBED)[0][place][:PROBED_SIZE] = group.rank + 1
    cupy().cuda.get_current_stream().synchronize()


def _read(window: DeviceWindow, group: Group) -> None:
    """Add up all slots, as calls do."""
    slots = [slot[:PROBED_SIZE] for slot in window.slots(PROBED)[0]]
    total = cupy().empty(PROBED_SIZE, PROBED)
    slice_sum.slice_sum(kernel_for("sum", PROBED), PROBED, slots, [total])
    found, wanted = total.get(), sum(rank + 1 for rank in group.topology.local_ranks)
    if (found != wanted).any():
        raise OSError(f"found {found[found != wanted][0]} instead of {wanted}")


def _open_window(
    group: Group, slot_bytes: int, timeout_s: float
) -> tuple[DeviceWindow | None, str]:
    """Make a window of the members' current devices, or say why that cannot be."""
    mine, reason = _all(group, lambda: export(2 * slot_bytes), timeout_s)
    if not reason:
        assert mine is not None
        offers = all_gather_bytes(group, mine.offer, timeout_s)
        here = [offers[rank] for rank in group.topology.local_ranks]
        memory, reason = _all(group, lambda: _open(mine, here), timeout_s)
        if memory is not None and not reason:
            assert group.window is not None
            place = group.topology.local_rank
            return DeviceWindow(group.window, memory, slot_bytes, place), ""
        for one in memory or ():
            if isinstance(one, Opened):
                one.close()
        group.hand_over(timeout_s)
    if mine is not None:
        free(mine)
    return None, reason


def _open(mine: Exported, offers: list[bytes]) -> list[Exported | Opened]:
    """Open the peers' parts; none stays open if one cannot be."""
    memory: list[Exported | Opened] = []
    try:
        for offer in offers:
            memory.append(mine if offer == mine.offer else Opened(offer))
    except BaseException:
        for one in memory:
            if isinstance(one, Opened):
                one.close()
        raise
    return memory


def _close_window(group: Group, window: DeviceWindow, timeout_s: float) -> None:
    """Close the parts of the peers; when all have done so, free the own one."""
    streams.finish(group, timeout_s)
    window.leave()
    group.hand_over(timeout_s)
    window.free()


def _all(group: Group, step: Callable[[], R], timeout_s: float) -> tuple[R | None, str]:
    """Do something on all ranks; return what came out, and what went wrong on any."""
    result, wrong = None, ""
    try:
        result = step()
    except Exception as error:  # the driver's errors are of several kinds
        wrong = f"{type(error).__name__}: {error}"
    return result, all_gather_errors(group, wrong, timeout_s)
