"""Opening and closing a group's window in the memory of GPUs; by all its ranks.

What fails on one rank is told to all: each step ends with the same verdict everywhere,
and what has been opened by then is closed again, before anybody frees it.
"""

from __future__ import annotations

from collections.abc import Callable
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
WAY = "cuda_ipc"
PROBED = np.dtype(np.int64)
PROBED_SIZE = 1000


def why_not(group: Group, timeout_s: float) -> str:
    """Return why the ranks cannot use each other's device memory; empty if they can.

    By trying: each writes into a window of its own device, and all add up what they
    find in it. Collective; what it has made is gone afterwards.
    """
    if group.window is None and not group.no_window:
        open_host_window(group, timeout_s)
        for plans in group.plans.values():
            plans.clear()
    if group.window is None:
        return group.no_window
    places = all_gather_bytes(group, namespaces(), timeout_s)
    apart = [rank for rank, place in enumerate(places) if place != places[0]]
    if apart:
        return f"ranks {apart} are in other containers than rank 0"
    window, reason = open_window(group, BLOCK_BYTES // 2, timeout_s)
    if window is None:
        return reason
    _, reason = _all(group, lambda: _write(window, group), timeout_s)
    if not reason:
        _, reason = _all(group, lambda: _read(window, group), timeout_s)
    close_window(group, window, timeout_s)
    return reason


def _write(window: DeviceWindow, group: Group) -> None:
    """Fill the own slot with this rank's number, from 1."""
    window.slots(PROBED)[0][group.rank][:PROBED_SIZE] = group.rank + 1
    cupy().cuda.get_current_stream().synchronize()


def _read(window: DeviceWindow, group: Group) -> None:
    """Add up all slots, as calls do."""
    slots = [slot[:PROBED_SIZE] for slot in window.slots(PROBED)[0]]
    total = cupy().empty(PROBED_SIZE, PROBED)
    slice_sum.slice_sum(kernel_for("sum", PROBED), PROBED, slots, [total])
    found, wanted = total.get(), group.size * (group.size + 1) // 2
    if (found != wanted).any():
        raise OSError(f"found {found[found != wanted][0]} instead of {wanted}")


def open_window(
    group: Group, slot_bytes: int, timeout_s: float
) -> tuple[DeviceWindow | None, str]:
    """Make a window of the members' current devices, or say why that cannot be."""
    mine, reason = _all(group, lambda: export(2 * slot_bytes), timeout_s)
    if not reason:
        assert mine is not None
        offers = all_gather_bytes(group, mine.offer, timeout_s)
        memory, reason = _all(group, lambda: _open(mine, offers), timeout_s)
        if memory is not None and not reason:
            assert group.window is not None
            return DeviceWindow(group.window, memory, slot_bytes, group.rank), ""
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


def close_window(group: Group, window: DeviceWindow, timeout_s: float) -> None:
    """Close the parts of the peers; when all have done so, free the own one."""
    streams.finish(group, timeout_s)
    window.leave()
    group.hand_over(timeout_s)
    window.free()


def window_of(group: Group, timeout_s: float) -> DeviceWindow | None:
    """Return the group's window; made at the first call that wants it.

    None where some rank's device has no memory for it; then this way is not to be had
    any more.
    """
    assert group.gpus is not None, "the ranks have told each other what they have"
    if group.device_window is None and WAY not in group.gpus.refusals:
        left = cupy().cuda.runtime.memGetInfo()[0]
        share = np.array([left // (8 * group.size)], np.int64)
        least = int(all_gather_rows(group, share, timeout_s).min())
        whole = max(1, least // BLOCK_BYTES) * BLOCK_BYTES
        slot_bytes = min(SLOT_BYTES, whole)
        group.device_window, reason = open_window(group, slot_bytes, timeout_s)
        if group.device_window is None:
            group.gpus.refusals[WAY] = f"there is no window: {reason}"
        else:
            group.at_close.append(group.device_window.free)
    return group.device_window


def _all(group: Group, step: Callable[[], R], timeout_s: float) -> tuple[R | None, str]:
    """Do something on all ranks; return what came out, and what went wrong on any."""
    result, wrong = None, ""
    try:
        result = step()
    except Exception as error:  # the driver's errors are of several kinds
        wrong = f"{type(error).__name__}: {error}"
    return result, all_gather_errors(group, wrong, timeout_s)
