"""Sums over the GPUs of one process, by NCCL's group calls: no MPI, no other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from collectives.gpu.arrays import cupy
from collectives.gpu.facts import nccl_version

WIDE = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64")
"""What NCCL adds as the processor does; narrow floats are to be widened before."""


def local_refusal(devices: Sequence[int], dtype: np.dtype[Any]) -> str:
    """Return why NCCL cannot add arrays on some GPUs; empty where it can."""
    if len(set(devices)) < len(devices):
        return f"several of the arrays are on one GPU: {list(devices)}"
    if dtype.name not in WIDE:
        return f"NCCL has no sum of {dtype}"
    return "" if nccl_version(cupy()) else "CuPy finds no NCCL"


def local_sums(columns: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the sum of each column of CuPy arrays, once for each of its parts.

    The parts of a column are alike, and part i of each is on the same GPU. The work is
    queued on the stream that is current for each GPU.

    Args:
        columns: arrays for which `local_refusal` has nothing to say.
    """
    from cupy.cuda import nccl

    module = cupy()
    members = _members(tuple(int(part.device.id) for part in columns[0]))
    sums: list[list[Any]] = [[] for _ in columns]
    given = []
    for place, member in enumerate(members):
        with columns[0][place].device:
            module.cuda.get_current_stream().wait_event(member.done)
            given.append([_dense(parts[place]) for parts in columns])
            for part, results in zip(given[place], sums, strict=True):
                results.append(module.empty(part.shape, part.dtype))
    nccl.groupStart()
    try:
        for place, member in enumerate(members):
            with columns[0][place].device:
                stream = module.cuda.get_current_stream().ptr
                for part, results in zip(given[place], sums, strict=True):
                    kind = getattr(nccl, f"NCCL_{part.dtype.name.upper()}")
                    there = results[place].data.ptr
                    member.comm.allReduce(
                        part.data.ptr, there, part.size, kind, nccl.NCCL_SUM, stream
                    )
    finally:
        nccl.groupEnd()
    for place, member in enumerate(members):
        with columns[0][place].device:
            member.done.record()
    return sums


def _dense(array: Any) -> Any:
    return array if array.flags.c_contiguous else array.copy()


class Member(NamedTuple):
    """One of the GPUs that add together."""

    comm: Any
    done: Any
    """An event after its latest call: calls of NCCL must be in one order, whatever
    streams they are on."""


@cache
def _members(devices: tuple[int, ...]) -> list[Member]:
    """Return what NCCL needs for each GPU, kept until the process ends."""
    from cupy.cuda import nccl

    members = []
    for device, comm in zip(
        devices, nccl.NcclCommunicator.initAll(list(devices)), strict=True
    ):
        with cupy().cuda.Device(device):
            members.append(Member(comm, cupy().cuda.Event(disable_timing=True)))
    return members
