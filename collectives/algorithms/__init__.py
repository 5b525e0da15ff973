"""The table of algorithms: which there are for each collective, and what they promise.

To add one: write its schedule (schedules.py) or its function, and add a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collectives import schedules
from collectives.algorithms import native
from collectives.algorithms.stepwise import Task, run_schedule
from collectives.schedules import Schedule


@dataclass(frozen=True)
class Algorithm:
    """One way to do a collective."""

    run: Callable[[Task], None]
    summary: str
    needs_mpi: bool = False
    """Whether it calls the MPI's own collective, with that one's limits."""


def _stepwise(make: Callable[[int, int], Schedule]) -> Callable[[Task], None]:
    """Run a schedule that treats all ranks alike."""

    def run(task: Task) -> None:
        run_schedule(task, make(task.group.rank, task.group.size))

    return run


def _rooted(make: Callable[[int, int, int], Schedule]) -> Callable[[Task], None]:
    """Run a schedule that has a root."""

    def run(task: Task) -> None:
        run_schedule(task, make(task.group.rank, task.group.size, task.root))

    return run


TABLE: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "native": Algorithm(native.all_reduce, "the MPI's own", needs_mpi=True),
        "recursive_doubling": Algorithm(
            _stepwise(schedules.recursive_doubling), "fewest steps: small arrays"
        ),
        "ring": Algorithm(
            _stepwise(schedules.ring_all_reduce), "fewest bytes: large arrays"
        ),
    },
    "reduce": {
        "native": Algorithm(native.reduce, "the MPI's own", needs_mpi=True),
        "tree": Algorithm(_rooted(schedules.tree_reduce), "fewest steps: small arrays"),
        "ring": Algorithm(
            _rooted(schedules.ring_reduce), "shares the adding: large arrays"
        ),
    },
    "broadcast": {
        "native": Algorithm(native.broadcast, "the MPI's own", needs_mpi=True),
        "tree": Algorithm(_rooted(schedules.tree_broadcast), "fewest steps"),
    },
    "all_gather": {
        "native": Algorithm(native.all_gather, "the MPI's own", needs_mpi=True),
        "ring": Algorithm(_stepwise(schedules.ring_all_gather), "fewest bytes"),
    },
}

AUTO = "auto"
ALGORITHMS: dict[str, tuple[str, ...]] = {
    collective: (AUTO, *table) for collective, table in TABLE.items()
}
