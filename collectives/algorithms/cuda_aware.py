"""The MPI library's own collectives on device memory, where that has been proved.

The calls are those of `native`, with the same limits and under the same watchdog. An
MPI knows nothing of streams: what was queued before is finished before it sees a
pointer, and what follows the call is finished before it returns. Only blocking calls:
MPIs that can do these crash in `Iallreduce`, `Ireduce` and `Reduce_local` of device
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collectives.algorithms import Algorithm, native
from collectives.algorithms.stepwise import Task
from collectives.gpu.streams import finish
from collectives.kernels import Kernel

OPERATIONS: dict[str, tuple[str, ...]] = {
    "all_reduce": ("Allreduce",),
    "reduce": ("Reduce",),
    "reduce_scatter": ("Reduce_scatter",),
    "broadcast": ("Bcast",),
    "all_gather": ("Allgather", "Allgatherv"),
    "gather": ("Gatherv",),
    "scatter": ("Scatterv",),
    "all_to_all": ("Alltoallv",),
}
"""What each collective asks of the MPI; see `collectives.gpu.proving`."""


def refusal(collective: str, kernel: Kernel | None) -> str:
    """Return why no MPI does this correctly; empty where one can that was proved."""
    return "" if kernel is None else native.refusal(kernel)


def _between_streams(run: Callable[[Task], None]) -> Callable[[Task], None]:
    """Return the call with the current stream finished before it and after it."""

    def on_device(task: Task) -> None:
        finish(task.group, task.timeout_s)
        run(task)
        finish(task.group, task.timeout_s)  # a mean was divided

    on_device.__doc__ = run.__doc__
    return on_device


_broadcast = _between_streams(native.broadcast)


def broadcast(task: Task) -> None:
    """`MPI_Bcast`."""
    if task.group.rank == task.root and task.source is not task.work:
        task.work[:] = task.source  # queued; the call must come after it
        task = replace(task, source=task.work)
    _broadcast(task)


RUNS: dict[str, Callable[[Task], None]] = {
    "all_reduce": _between_streams(native.all_reduce),
    "reduce": _between_streams(native.reduce),
    "reduce_scatter": _between_streams(native.reduce_scatter),
    "broadcast": broadcast,
    "all_gather": _between_streams(native.all_gather),
    "gather": _between_streams(native.gather),
    "scatter": _between_streams(native.scatter),
    "all_to_all": _between_streams(native.all_to_all),
}
ROWS: dict[str, Algorithm] = {
    name: Algorithm(run, f"the MPI's own {name}, given device pointers")
    for name, run in RUNS.items()
}
