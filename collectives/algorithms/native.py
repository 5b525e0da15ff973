"""The MPI library's own collectives, inside our checks.

By the time one of these runs, every rank has arrived with the same call, so the library
is never the one to discover a mismatch. A call blocks inside the library and cannot be
polled; the watchdog holds the deadline.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

from collectives.algorithms.stepwise import Task
from collectives.buffers import as_bytes
from collectives.kernels import Kernel
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
    if kernel.op in ("min", "max") and kernel.kind in "ef":
        return "MPI libraries lose NaN in min and max"
    return ""


def all_reduce(task: Task) -> None:
    """`MPI_Allreduce`."""
    _reduce(task, "Allreduce", {})


def reduce(task: Task) -> None:
    """`MPI_Reduce`."""
    _reduce(task, "Reduce", {"root": task.root})


def broadcast(task: Task) -> None:
    """`MPI_Bcast`."""
    if task.group.rank == task.root and task.source is not task.work:
        task.work[:] = task.source
    with _guard(task, "Bcast"):
        task.group.native.Bcast(as_bytes(task.work), root=task.root)


def all_gather(task: Task) -> None:
    """`MPI_Allgatherv`."""
    itemsize = task.work.itemsize
    starts = [bound * itemsize for bound in task.bounds]
    lengths = [high - low for low, high in pairwise(starts)]
    receive = [as_bytes(task.work), (lengths, starts[:-1])]
    with _guard(task, "Allgatherv"):
        task.group.native.Allgatherv(as_bytes(task.source), receive)


def _reduce(task: Task, name: str, root: dict[str, int]) -> None:
    kernel = task.kernel
    assert kernel is not None, "a reduction needs a kernel"
    receives = not root or task.group.rank == task.root
    in_place = receives and task.source is task.work
    op = _mpi_op(kernel.op, kernel.kind == "b")
    with _guard(task, name):
        getattr(task.group.native, name)(
            _mpi().IN_PLACE if in_place else task.source, task.work, op, **root
        )
    if receives:
        kernel.finish(task.work, task.group.size)


@cache
def _mpi() -> Any:
    from mpi4py import MPI

    return MPI


@cache
def _mpi_op(op: str, logical: bool) -> Any:
    return getattr(_mpi(), (MPI_BOOL_OPS if logical else MPI_OPS)[op])


def _guard(task: Task, name: str) -> Guarded:
    return Guarded(task.timeout_s, lambda: _describe(task, name))


def _describe(task: Task, name: str) -> str:
    group = task.group
    return (
        f"rank {group.rank} is stuck in MPI_{name} ({group.doing} "
        f"#{group.sequence}) for {task.timeout_s:g} s"
    )
