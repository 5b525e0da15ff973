"""Finding out what the ranks have for device arrays, before the first such call."""

from __future__ import annotations

import pickle
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from collectives.algorithms import device_window
from collectives.algorithms.small import all_gather_bytes
from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.gpu import proving, streams
from collectives.gpu.arrays import device_view
from collectives.gpu.facts import Gpus, Own, agreed, own, without_gpus
from collectives.group import Group
from collectives.plans import Planner

IPC = "cuda_ipc"


def without_asking(group: Group) -> Gpus | None:
    """Return what is known since the start: that not every rank has a GPU."""
    with_gpu = group.topology.with_gpu
    return None if with_gpu and all(with_gpu) else without_gpus(with_gpu)


def open_gpus(planner: Planner, array: Any) -> Call:
    """Let all ranks know what each has: the GPU of an array, or the current one."""
    group, timeout_s = planner.group, planner.options.timeout_s
    view = None if array is None else device_view(array).array
    with _there(view):
        mine = own(_unaware(group))

    def run() -> None:
        told = all_gather_bytes(group, pickle.dumps(mine), timeout_s)
        everyone = [Own(*pickle.loads(one)) for one in told]
        gpus = agreed(group.rank, everyone, len(group.topology.hosts))
        if IPC not in gpus.refusals:
            with _there(view):
                reason = device_window.why_not(group, timeout_s)
            gpus.refusals.update({IPC: reason} if reason else {})
        group.gpus = gpus

    return Call(Descriptor("open_gpus"), run)


def _there(array: Any) -> AbstractContextManager[None]:
    """Return what makes an array's device the current one, if there is an array."""
    return nullcontext() if array is None else streams.using(array)


def _unaware(group: Group) -> str:
    """Return why the MPI, as it says, may not be given device pointers, or empty."""
    if group.native is None:
        return "there is no MPI"
    return proving.word(proving.library())
