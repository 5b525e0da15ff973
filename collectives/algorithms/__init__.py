"""The table of algorithms: which there are for each collective, and what they promise.

To add one: write its schedule (schedules/) or its function, and add a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from collectives import schedules
from collectives.algorithms import (
    direct,
    hierarchical,
    native,
    ordered,
    scanning,
    shared,
    shared_sums,
)
from collectives.algorithms.stepwise import Task, run_schedule
from collectives.kernels import Array
from collectives.lanes import around_hosts
from collectives.schedules import Schedule
from collectives.schedules.step import in_places

Start = Callable[[Task], Callable[[], None]]
Flow = Callable[[Task, Sequence[Array], Sequence[Array]], None]


@dataclass(frozen=True)
class Algorithm:
    """One way to do a collective."""

    run: Callable[[Task], None]
    summary: str
    start: Start | None = None
    """Does what can be done before the ranks of a host agree on the call, and returns
    the rest; `run` does the same after they have, with one more hand-over."""
    flow: Flow | None = None
    """Does it for several arrays, one behind the other, without packing them."""
    needs_mpi: bool = False
    """Whether it calls the MPI's own collective, with that one's limits."""
    in_order: bool = False
    """Whether every element is combined strictly in the order of ranks."""
    sums_stay: bool = False
    """Whether only contributions and results travel, never a partial sum: then narrow
    floats travel as they are."""
    needs_window: bool = False
    """Whether all ranks must share one memory."""
    host_windows: bool = False
    """Whether the ranks of each host must share a memory."""
    host_by_host: bool = False
    """Whether the ranks of a host must follow each other."""
    needs_permission: bool = False
    """Whether ranks read each other's memory, which the system may forbid."""
    whole: bool = False
    """Whether ranks other than the root need room for the whole array."""


Needed = Callable[[Task], Iterable[int]]


def everything(task: Task) -> Iterable[int]:
    """Need all blocks in the end."""
    return range(task.group.size)


def everything_at_root(task: Task) -> Iterable[int]:
    """Need all blocks on the root, and nothing elsewhere."""
    return range(task.group.size) if task.group.rank == task.root else ()


def own_block(task: Task) -> Iterable[int]:
    """Need this rank's block."""
    return (task.group.rank,)


def no_more(task: Task) -> Iterable[int]:
    """Need what the schedule writes, and nothing else."""
    return ()


def _stepwise(
    make: Callable[[int, int], Schedule], needed: Needed
) -> Callable[[Task], None]:
    """Run a schedule that treats all ranks alike."""

    def run(task: Task) -> None:
        run_schedule(task, make(task.group.rank, task.group.size), needed(task))

    return run


def _rooted(
    make: Callable[[int, int, int], Schedule], needed: Needed
) -> Callable[[Task], None]:
    """Run a schedule that has a root."""

    def run(task: Task) -> None:
        steps = make(task.group.rank, task.group.size, task.root)
        run_schedule(task, steps, needed(task))

    return run


def _around(
    make: Callable[..., Schedule], needed: Needed, rooted: bool = False
) -> Callable[[Task], None]:
    """Run a schedule of single blocks that goes around the ranks, host by host."""

    def run(task: Task) -> None:
        order = around_hosts(task.group.topology.host_of)
        root = (order.index(task.root),) if rooted else ()
        steps = make(order.index(task.group.rank), task.group.size, *root)
        run_schedule(task, in_places(steps, order), needed(task))

    return run


NATIVE, SHARED, DIRECT, HIERARCHICAL = "native", "shared", "direct", "hierarchical"


def _native(run: Callable[[Task], None]) -> Algorithm:
    return Algorithm(run, "the MPI's own", needs_mpi=True)


def _shared(
    run: Callable[[Task], None],
    sums_stay: bool = False,
    start: Start | None = None,
    flow: Flow | None = None,
) -> Algorithm:
    return Algorithm(
        run,
        "through the memory of a host, in rank order",
        start,
        flow,
        in_order=True,
        sums_stay=sums_stay,
        needs_window=True,
    )


def _direct(
    run: Callable[[Task], None], sums_stay: bool = False, start: Start | None = None
) -> Algorithm:
    return Algorithm(
        run,
        "from the peers' own memory, in rank order",
        start,
        in_order=True,
        sums_stay=sums_stay,
        needs_window=True,
        needs_permission=True,
    )


def _hierarchical(
    run: Callable[[Task], None], flow: Flow | None = None, whole: bool = False
) -> Algorithm:
    return Algorithm(
        run,
        "memory inside hosts, all their ranks between hosts",
        flow=flow,
        host_windows=True,
        whole=whole,
    )


TABLE: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        NATIVE: _native(native.all_reduce),
        SHARED: _shared(
            shared_sums.all_reduce,
            True,
            shared_sums.start_all_reduce,
            shared_sums.flowing_all_reduce,
        ),
        DIRECT: _direct(direct.all_reduce, True, direct.start_all_reduce),
        "recursive_doubling": Algorithm(
            _stepwise(schedules.recursive_doubling, everything),
            "fewest steps: small arrays",
        ),
        "halving_doubling": Algorithm(
            _stepwise(schedules.halving_doubling, everything),
            "few steps and bytes, 2^k ranks",
        ),
        "circulant": Algorithm(
            _stepwise(schedules.circulant_all_reduce, everything),
            "few steps and bytes, any ranks",
        ),
        "ring": Algorithm(
            _around(schedules.ring_all_reduce, everything),
            "fewest bytes, neighbours only",
        ),
        "exchange": Algorithm(
            _stepwise(schedules.pairwise_all_reduce, everything),
            "fewest bytes, narrow floats as they are",
            sums_stay=True,
        ),
        HIERARCHICAL: _hierarchical(
            hierarchical.all_reduce, hierarchical.flowing_all_reduce
        ),
        "hierarchical_copy": Algorithm(
            hierarchical.copying_all_reduce,
            "memory inside hosts, one of their ranks between hosts",
            host_windows=True,
        ),
        "hierarchical_chain": Algorithm(
            hierarchical.ordered_all_reduce,
            "in rank order, along the hosts, all their ranks between them",
            flow=hierarchical.flowing_ordered_all_reduce,
            in_order=True,
            host_windows=True,
            host_by_host=True,
        ),
        "chain": Algorithm(
            _stepwise(schedules.chain_all_reduce, everything),
            "in rank order",
            in_order=True,
        ),
        "pairwise": Algorithm(
            ordered.all_reduce,
            "in rank order, fewest bytes",
            in_order=True,
            sums_stay=True,
        ),
    },
    "reduce": {
        NATIVE: _native(native.reduce),
        SHARED: _shared(shared_sums.reduce, sums_stay=True),
        DIRECT: _direct(direct.reduce, sums_stay=True),
        HIERARCHICAL: _hierarchical(hierarchical.reduce),
        "tree": Algorithm(
            _rooted(schedules.tree_reduce, everything_at_root),
            "fewest steps: small arrays",
        ),
        "ring": Algorithm(
            _around(schedules.ring_reduce, everything_at_root, rooted=True),
            "shares the adding: large arrays",
        ),
        "chain": Algorithm(
            _rooted(schedules.chain_reduce, everything_at_root),
            "in rank order",
            in_order=True,
        ),
    },
    "reduce_scatter": {
        NATIVE: _native(native.reduce_scatter),
        SHARED: _shared(shared.reduce_scatter, sums_stay=True),
        DIRECT: _direct(direct.reduce_scatter, sums_stay=True),
        HIERARCHICAL: _hierarchical(hierarchical.reduce_scatter),
        "circulant": Algorithm(
            _stepwise(schedules.circulant_reduce_scatter, own_block),
            "fewest steps and bytes",
        ),
        "ring": Algorithm(
            _around(schedules.ring_reduce_scatter, own_block),
            "fewest bytes, neighbours only",
        ),
        "exchange": Algorithm(
            _stepwise(schedules.pairwise_reduce_scatter, own_block),
            "fewest bytes, narrow floats as they are",
            sums_stay=True,
        ),
        "pairwise": Algorithm(
            ordered.reduce_scatter, "in rank order", in_order=True, sums_stay=True
        ),
    },
    "scan": {
        NATIVE: _native(native.scan),
        SHARED: _shared(shared.scan),
        "chain": Algorithm(scanning.inclusive, "in rank order", in_order=True),
    },
    "exclusive_scan": {
        NATIVE: _native(native.exclusive_scan),
        SHARED: _shared(shared.exclusive_scan),
        "chain": Algorithm(scanning.exclusive, "in rank order", in_order=True),
    },
    "broadcast": {
        NATIVE: _native(native.broadcast),
        SHARED: _shared(shared.broadcast),
        DIRECT: _direct(direct.broadcast),
        HIERARCHICAL: _hierarchical(hierarchical.broadcast),
        "tree": Algorithm(
            _rooted(schedules.tree_broadcast, everything_at_root), "fewest steps"
        ),
        "chain": Algorithm(
            _rooted(schedules.chain_broadcast, everything_at_root),
            "segments flow: large arrays",
        ),
    },
    "all_gather": {
        NATIVE: _native(native.all_gather),
        SHARED: _shared(shared.all_gather),
        DIRECT: _direct(direct.all_gather),
        HIERARCHICAL: _hierarchical(hierarchical.all_gather),
        "circulant": Algorithm(
            _stepwise(schedules.circulant_all_gather, no_more), "fewest steps and bytes"
        ),
        "ring": Algorithm(
            _around(schedules.ring_all_gather, no_more),
            "fewest bytes, neighbours only",
        ),
    },
    "gather": {
        NATIVE: _native(native.gather),
        SHARED: _shared(shared.gather),
        HIERARCHICAL: _hierarchical(hierarchical.gather, whole=True),
        "tree": Algorithm(
            _rooted(schedules.tree_gather, no_more), "fewest steps", whole=True
        ),
        "linear": Algorithm(
            _rooted(schedules.linear_gather, no_more), "every byte moved once"
        ),
    },
    "scatter": {
        NATIVE: _native(native.scatter),
        SHARED: _shared(shared.scatter),
        HIERARCHICAL: _hierarchical(hierarchical.scatter, whole=True),
        "tree": Algorithm(
            _rooted(schedules.tree_scatter, no_more), "fewest steps", whole=True
        ),
        "linear": Algorithm(
            _rooted(schedules.linear_scatter, no_more), "every byte moved once"
        ),
    },
    "all_to_all": {
        NATIVE: _native(native.all_to_all),
        SHARED: _shared(shared.all_to_all),
        HIERARCHICAL: _hierarchical(hierarchical.all_to_all),
        "pairwise": Algorithm(
            _stepwise(schedules.pairwise_all_to_all, no_more), "every byte moved once"
        ),
    },
}

REDUCING = frozenset(
    ("all_reduce", "reduce", "reduce_scatter", "scan", "exclusive_scan")
)
AUTO = "auto"
ALGORITHMS: dict[str, tuple[str, ...]] = {
    collective: (AUTO, *table) for collective, table in TABLE.items()
}
