"""What a reader must know to judge the figures: the header of every format."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

import collectives
from collectives.bench import buffers, device, measure
from collectives.bench.arguments import Request
from collectives.bench.case import PART_BYTES, Case, Size
from collectives.bench.cases import CUDA, HOST, cases_on
from collectives.bench.results import Facts
from collectives.communicator import Communicator
from collectives.topology import usable_cores

__all__ = ["cores", "gather_facts", "memory_mode", "rounding_note"]

METHOD = (
    "median over repetitions, and the minimum; a repetition is a batch of calls "
    "between two barriers, its time the slowest rank's; algorithms alternate; vs mpi "
    "is mpi's median over this median, then minimum over minimum"
)


def gather_facts(
    comm: Communicator,
    request: Request,
    asked: Sequence[int],
    sizes: Sequence[Size],
    buffer: NDArray[Any],
    command: str,
) -> Facts:
    """Collect the facts of a run from all ranks. Collective."""
    case = cases_on(request.device)[request.collective]
    on_host = request.device == HOST
    topology = comm.topology
    mine = {
        "rank": comm.rank,
        "pid": os.getpid(),
        "host": topology.hosts[topology.host_of[comm.rank]],
        "cores": cores(usable_cores()),
    }
    mpi = topology.mpi
    return Facts(
        collective=case.name,
        dtype=request.dtype if case.sized else "none",
        op=request.op if case.reduces else "none",
        root=request.root if case.rooted else -1,
        ranks=comm.size,
        hosts=topology.hosts,
        host_of=topology.host_of,
        processes=tuple(comm.all_gather_object(mine)),
        versions={
            "ringfold": collectives.__version__,
            "Python": platform.python_version(),
            "NumPy": np.__version__,
        },
        mpi=None if mpi is None else f"{mpi.vendor} {mpi.version}",
        mpi_library=None if mpi is None else mpi.library,
        topology=_topology(comm),
        command=command,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        settings=_settings(comm, request),
        method=METHOD,
        buffers=buffers.describe(buffer) if on_host else device.describe(),
        memory=(memory_mode(comm),),
        notes=_notes(case, request, asked, sizes),
        baseline="mpi" if on_host else "raw",
    )


def memory_mode(comm: Communicator) -> str:
    """Say how memory behaves between the ranks at the moment. Collective."""
    return str(comm.probe() or "no window that all ranks share")


def _topology(comm: Communicator) -> str:
    """Say where the ranks are, and what AUTO knows of such a place."""
    topology = comm.topology
    tables = [table.name for table in comm._group.tuning.tables]
    parts = f"{topology.shape}, {topology.parts}".rstrip(", ")
    aware = f", CUDA-aware: {topology.mpi.cuda_aware}" if topology.mpi else ""
    return f"{parts}{aware}; tables: {'; '.join(tables)}"


def _settings(comm: Communicator, request: Request) -> str:
    calls = request.iterations or "{}-{}".format(*measure.CALLS)
    repetitions = request.repetitions or "{}-{}".format(*measure.REPETITIONS)
    return (
        f"{request.collective}: nRank {comm.size} nHost {len(comm.topology.hosts)} "
        f"minBytes {request.min_bytes} maxBytes {request.max_bytes} "
        f"step: {request.step} warmup iters: {request.warmup} iters: {calls} "
        f"repetitions: {repetitions} validation: {int(request.check)}"
    )


def _notes(
    case: Case, request: Request, asked: Sequence[int], sizes: Sequence[Size]
) -> tuple[str, ...]:
    """Return what is unlike what one might think."""
    listed = request.shapes
    notes = [
        rounding_note(case, asked, sizes),
        f"one row: the {len(listed.shapes)} arrays of {listed.name}, "
        f"{listed.elements} elements, one after the other in one buffer"
        if case.listed
        else None,
        f"a call is a message there and back between ranks 0 and 1; times are those "
        f"of one of its {case.messages} messages"
        if case.messages > 1
        else None,
        "registered: ours work on arrays that the ranks of a host share, mpi does not"
        if request.registered
        else None,
        "SHARED: one result a host, out of place; vs mpi compares it with mpi in place"
        if request.result == "shared"
        else None,
        "touched: every rank reads the whole SHARED result inside the time"
        if request.touch
        else None,
        "arrays on GPUs; the stream is waited for in the time of every call. copy: one "
        "on the device; host_copy: into pinned memory of the host and back"
        if request.device == CUDA
        else None,
    ]
    return tuple(note for note in notes if note is not None)


def rounding_note(
    case: Case, asked: Sequence[int], sizes: Sequence[Size]
) -> str | None:
    """Say which sizes are not those that were asked for, and why; None if all are."""
    if not case.sized:
        return f"{case.name} moves no data: one row, whatever the sizes"
    changed = [
        f"{nbytes} -> {size.nbytes}"
        for nbytes, size in zip(asked, sizes, strict=True)
        if nbytes != size.nbytes
    ]
    if not changed:
        return None
    unit = f"{PART_BYTES} bytes a rank" if case.by_parts else "whole elements"
    return f"sizes are rounded down to {unit}: {', '.join(changed)}"


def cores(affinity: Collection[int]) -> str:
    """Write a set of cores as ranges, such as `0-3,8`."""
    runs = []
    for _, members in groupby(
        enumerate(sorted(affinity)), lambda pair: pair[1] - pair[0]
    ):
        numbers = [core for _, core in members]
        span = {numbers[0]: None, numbers[-1]: None}
        runs.append("-".join(str(core) for core in span))
    return ",".join(runs)
