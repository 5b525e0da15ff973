"""Finding out what the ranks have for device arrays, before the first such call."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from typing import Any

from collectives.algorithms.small import all_gather_bytes
from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.gpu import proving, streams
from collectives.gpu.arrays import device_view
from collectives.gpu.facts import Gpus, Own, agreed, own, without_gpus
from collectives.group import Group
from collectives.plans import Planner


def without_asking(group: Group) -> Gpus | None:
    """Return what is known since the start: that not every rank has a GPU."""
    with_gpu = group.topology.with_gpu
    return None if with_gpu and all(with_gpu) else without_gpus(with_gpu)


def open_gpus(planner: Planner, array: Any) -> Call:
    """Let all ranks know what each has: the GPU of an array, or the current one."""
    group = planner.group
    with nullcontext() if array is None else streams.using(device_view(array).array):
        mine = own(_unaware(group))

    def run() -> None:
        told = all_gather_bytes(group, pickle.dumps(mine), planner.options.timeout_s)
        everyone = [Own(*pickle.loads(one)) for one in told]
        group.gpus = agreed(group.rank, everyone, len(group.topology.hosts))

    return Call(Descriptor("open_gpus"), run)


def _unaware(group: Group) -> str:
    """Return why the MPI, as it says, may not be given device pointers, or empty."""
    if group.native is None:
        return "there is no MPI"
    return proving.word(proving.library())
