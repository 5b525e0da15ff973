"""Large all-reduces of device arrays by way of the host, in segments.

While a segment is reduced on the host, the next one is on its way from the device and
the one before on its way back: two copies on streams of their own and the host's work,
side by side. Source: the usual three-stage pipeline; in the end the slowest of the
three decides, where one after the other would take their sum.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.gpu import streams
from collectives.gpu.arrays import cupy
from collectives.gpu.facts import STAGED
from collectives.kernels import Op, kernel_for
from collectives.moving import Plan
from collectives.plans import Planner

SEGMENT_BYTES = 4 << 20
BUFFERS = 3  # one coming, one being reduced, one going back


def worth_it(planner: Planner, array: Any, op: Op) -> bool:
    """Tell, the same on every rank, whether an all-reduce goes in segments."""
    kernel = kernel_for(op, array.dtype)
    return (
        all(planner.group.topology.with_gpu)
        and planner.group.size > 1
        and not planner.group.joining
        and kernel.result_dtype == array.dtype
        and array.nbytes >= BUFFERS * SEGMENT_BYTES
    )


def pipelined(
    planner: Planner, array: Any, op: Op, out: Any, algorithm: str | None
) -> Call:
    """Return the all-reduce of one CuPy array into another, which may be the same.

    Args:
        planner: of calls with host arrays.
        array: what is given; of any layout.
        op: how to combine.
        out: where the result goes; of the same shape and dtype, and any layout.
        algorithm: of the host, for every segment.
    """
    length = SEGMENT_BYTES // array.dtype.itemsize
    bounds = [*range(0, array.size, length), array.size]
    plans = {
        size: planner.plan("all_reduce", _like(size, array.dtype), op, -1, algorithm)
        for size in (length, bounds[-1] - bounds[-2])
    }
    first = plans[length]
    descriptor = Descriptor(
        "all_reduce",
        dtype=str(array.dtype),
        op=first.descriptor.op,
        shape=array.shape,
        algorithm=f"{STAGED}, {first.descriptor.algorithm}",
    )

    def run() -> Any:
        _run(planner, plans, bounds, array, out)
        return out

    return Call(descriptor, run, windowed=planner.windowed(first))


def _run(
    planner: Planner, plans: dict[int, Plan], bounds: list[int], array: Any, out: Any
) -> None:
    cuda, group, timeout_s = cupy().cuda, planner.group, planner.options.timeout_s
    direct = bool(out.flags.c_contiguous)
    flat = out.reshape(-1) if direct else cupy().empty(out.size, out.dtype)
    source = array.ravel()
    if np.may_share_memory(source, flat) and source.data.ptr != flat.data.ptr:
        source = source.copy()
    caller = cuda.get_current_stream()
    coming, going = (cuda.Stream(non_blocking=True) for _ in range(2))
    for stream in (coming, going):
        stream.wait_event(caller.record())
    group.pinned.begin()
    room = [group.pinned.empty((bounds[1],), source.dtype) for _ in range(BUFFERS)]
    segments = [
        (low, high, room[number % BUFFERS][: high - low])
        for number, (low, high) in enumerate(pairwise(bounds))
    ]
    come: list[Any] = []
    gone: list[Any] = []

    def fetch() -> None:
        number = len(come)
        if number == len(segments):
            return
        if number >= BUFFERS:
            coming.wait_event(gone[number - BUFFERS])
        low, high, place = segments[number]
        source[low:high].get(stream=coming, out=place, blocking=False)
        come.append(coming.record())

    fetch()
    for number, (low, high, place) in enumerate(segments):
        fetch()
        streams.wait_for(group, come[number], timeout_s)
        planner.move(plans[high - low], place, place)
        flat[low:high].set(place, stream=going)
        gone.append(going.record())
    caller.wait_event(gone[-1])
    if not direct:
        out[...] = flat.reshape(out.shape)
    streams.finish(group, timeout_s)


def _like(size: int, dtype: np.dtype[Any]) -> Any:
    """Return an array of that many elements, without its memory."""
    return np.broadcast_to(np.empty((), dtype), (size,))
