"""The MPI library's own collectives, inside our checks.

By the time one of these runs, every rank has arrived with the same call, so the library
is never the one to discover a mismatch. A call blocks inside the library and cannot be
polled; the watchdog holds the deadline.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from collectives.algorithms.stepwise import Task
from collectives.buffers import as_bytes
from collectives.group import Group
from collectives.kernels import Array, Kernel
from collectives.missing import missing
from collectives.partition import Bounds
from collectives.topology import Topology
from collectives.watchdog import Guarded

MPI_OPS = {
    "sum": "SUM",
    "mean": "SUM",
    "prod": "PROD",
    "min": "MIN",
    "max": "MAX",
    "and": "BAND",
    "or": "BOR",
    "xor": "BXOR",
}
MPI_BOOL_OPS = {"min": "LAND", "max": "LOR", "and": "LAND", "or": "LOR", "xor": "LXOR"}


def refusal(kernel: Kernel) -> str:
    """Return why the MPI cannot reduce this correctly; empty when it can."""
    if kernel.op not in (MPI_BOOL_OPS if kernel.kind == "b" else MPI_OPS):
        return f"MPI has no {kernel.op} for {kernel.work_dtype}"
    if kernel.op == "sum" and kernel.work_dtype.itemsize < 4 and kernel.kind in "iu":
        return "Open MPI clips sums of 8 and 16 bit instead of wrapping them around"
    if kernel.op in ("min", "max") and kernel.kind in "ef":
        return "MPI libraries lose NaN in min and max"
    return ""


def crash(collective: str, topology: Topology) -> str:
    """Return why the MPI's own call would end the job; empty when it does not."""
    intel = topology.mpi is not None and topology.mpi.vendor == "Intel MPI"
    uneven = len(set(Counter(topology.host_of).values())) > 1
    if collective == "reduce" and intel and uneven:
        # Seen with 2021.18: one float32 to rank 1, which shares a host with rank 0.
        return "Intel MPI crashes in it when hosts have different numbers of ranks"
    return ""


def all_reduce(task: Task) -> None:
    """`MPI_Allreduce`."""
    _reduce(task, "Allreduce", {})


def reduce(task: Task) -> None:
    """`MPI_Reduce`."""
    _reduce(task, "Reduce", {"root": task.root})


def scan(task: Task) -> None:
    """`MPI_Scan`."""
    _reduce(task, "Scan", {}, finish=False)


def exclusive_scan(task: Task) -> None:
    """`MPI_Exscan`; on rank 0 `work` keeps what it has."""
    work = np.empty_like(task.work) if task.group.rank == 0 else task.work
    with _guard(task, "Exscan"):
        task.group.native.Exscan(task.source, work, _op(task))


def reduce_scatter(task: Task) -> None:
    """`MPI_Reduce_scatter`."""
    lengths, _ = _extents(task.bounds, 1)
    rank = task.group.rank
    mine = task.work[task.bounds[rank] : task.bounds[rank + 1]]
    with _guard(task, "Reduce_scatter"):
        task.group.native.Reduce_scatter(task.source, mine, lengths, _op(task))
    assert task.kernel is not None
    task.kernel.finish(mine, task.group.divisor)


def broadcast(task: Task) -> None:
    """`MPI_Bcast`."""
    if task.group.rank == task.root and task.source is not task.work:
        task.work[:] = task.source
    with _guard(task, "Bcast"):
        task.group.native.Bcast(as_bytes(task.work), root=task.root)


def all_gather(task: Task) -> None:
    """`MPI_Allgather`, or `MPI_Allgatherv`, this rank's block being in its place.

    MPICH's v form is 6 to 10 times slower, so it is left to blocks of different sizes.
    """
    lengths, starts = _extents(task.bounds, task.work.itemsize)
    whole, comm = as_bytes(task.work), task.group.native
    if len(set(lengths)) == 1:
        with _guard(task, "Allgather"):
            comm.Allgather(_mpi().IN_PLACE, whole)
    else:
        with _guard(task, "Allgatherv"):
            comm.Allgatherv(_mpi().IN_PLACE, [whole, (lengths, starts)])


def gather(task: Task) -> None:
    """`MPI_Gatherv`, the root's block being in its place already."""
    whole = [as_bytes(task.work), _extents(task.bounds, task.work.itemsize)]
    is_root = task.group.rank == task.root
    source = _mpi().IN_PLACE if is_root else _own_bytes(task)
    with _guard(task, "Gatherv"):
        task.group.native.Gatherv(source, whole if is_root else None, root=task.root)


def scatter(task: Task) -> None:
    """`MPI_Scatterv`; the root's own block stays where it is."""
    whole = [as_bytes(task.source), _extents(task.bounds, task.work.itemsize)]
    is_root = task.group.rank == task.root
    target = _mpi().IN_PLACE if is_root else _own_bytes(task)
    with _guard(task, "Scatterv"):
        task.group.native.Scatterv(whole if is_root else None, target, root=task.root)


def all_to_all(task: Task) -> None:
    """`MPI_Alltoallv`."""
    assert task.source_bounds is not None
    itemsize = task.work.itemsize
    outgoing = [as_bytes(task.source), _extents(task.source_bounds, itemsize)]
    incoming = [as_bytes(task.work), _extents(task.bounds, itemsize)]
    with _guard(task, "Alltoallv"):
        task.group.native.Alltoallv(outgoing, incoming)


def all_gather_rows(group: Group, row: Array, timeout_s: float) -> Array:
    """Return a row of numbers from every rank, once they have agreed on a call."""
    rows = np.empty((group.size, row.size), row.dtype)
    task = Task(group, (), row, row, timeout_s=timeout_s)
    with _guard(task, "Allgather"):
        group.native.Allgather(row, rows)
    return rows


def _reduce(task: Task, name: str, root: dict[str, int], finish: bool = True) -> None:
    kernel, work, group = task.kernel, task.work, task.group
    assert kernel is not None, "a reduction needs a kernel"
    receives = not root or group.rank == task.root
    in_place = receives and task.source is work
    source = _mpi().IN_PLACE if in_place else task.source
    op = _mpi_op(kernel.op, kernel.kind == "b")
    with _guard(task, name):
        getattr(group.native, name)(source, work, op, **root)
    if receives and finish:
        kernel.finish(work, group.divisor)


def _extents(bounds: Bounds, itemsize: int) -> tuple[list[int], list[int]]:
    """Return lengths and starts of the blocks, as MPI's `…v` calls want them."""
    starts = [bound * itemsize for bound in bounds]
    return [high - low for low, high in pairwise(starts)], starts[:-1]


def _own_bytes(task: Task) -> Array:
    """Return this rank's block of `work`."""
    rank = task.group.rank
    return as_bytes(task.work[task.bounds[rank] : task.bounds[rank + 1]])


def _op(task: Task) -> Any:
    assert task.kernel is not None, "a reduction needs a kernel"
    return _mpi_op(task.kernel.op, task.kernel.kind == "b")


@cache
def _mpi() -> Any:
    from mpi4py import MPI

    return MPI


@cache
def _mpi_op(op: str, logical: bool) -> Any:
    return getattr(_mpi(), (MPI_BOOL_OPS if logical else MPI_OPS)[op])


def _guard(task: Task, name: str) -> Guarded:
    # Not the task: the watchdog may look at it, and keep its arrays, long after.
    group, timeout_s = task.group, task.timeout_s
    return Guarded(timeout_s, lambda: _describe(group, name, timeout_s))


def _describe(group: Group, name: str, timeout_s: float) -> str:
    return (
        f"rank {group.rank} is stuck in MPI_{name} ({group.doing} "
        f"#{group.sequence}) for {timeout_s:g} s: {missing(group, timeout_s)}"
    )
