"""Through memory that the ranks of a host share: the window of the group.

A call goes in *rounds*. In each, every rank writes what others need of its segment into
its slot, comes to a hand-over, and reads what it needs from the others' slots. While
slow ranks still read, the next round writes the other slot. A hand-over costs less than
a message, a slot stays in the cache, and so a call costs what its loads and stores do:
what a rank has itself never goes through the window.

Reductions add in the order of ranks, every element on one rank alone: the bits depend
on nothing but the inputs. An all-reduce of n bytes on p ranks stores, over all ranks,
(p-1) n into slots, n as sums there and p n into the results.
"""

from __future__ import annotations

from collectives.algorithms.rounds import MakeRounds, Rounds, Slots
from collectives.algorithms.stepwise import Task
from collectives.kernels import Array


def reduce_scatter(task: Task, make: MakeRounds = Rounds) -> None:
    """Leave this rank's block, combined, in its place in `work`."""
    rounds = make(task, True)
    rank, source, work, bounds = rounds.rank, task.source, task.work, task.bounds

    def write(number: int, slot: Array) -> None:
        for block in range(rounds.size):
            if block != rank:
                span = rounds.span(bounds, block, number)
                slot[rounds.place(block, span)] = source[span]

    def read(number: int, slots: Slots) -> None:
        span = rounds.span(bounds, rank, number)
        place = rounds.place(rank, span)
        parts = [slot[place] for slot in slots]
        parts[rank] = source[span]
        rounds.combine(parts, work[span])

    rounds.run(bounds, write, read)


def scan(task: Task, make: MakeRounds = Rounds) -> None:
    """Leave the sum of the ranks up to this one in `work`."""
    _scan(task, task.group.rank + 1, make)


def exclusive_scan(task: Task, make: MakeRounds = Rounds) -> None:
    """Leave the sum of the ranks before this one in `work`; rank 0's stays."""
    _scan(task, task.group.rank, make)


def sum_whole(task: Task, make: MakeRounds = Rounds) -> None:
    """Leave the sum in everybody's `work`, or the root's: each adds up all of it.

    One hand-over, for arrays so small that it counts for more than bytes do.
    """
    wanted = task.root in (-1, task.group.rank)
    _scan(task, task.group.size if wanted else 0, make, complete=True)


def _scan(task: Task, ranks: int, make: MakeRounds, complete: bool = False) -> None:
    rounds = make(task, False)
    bounds, source, work = (0, task.source.size), task.source, task.work

    def write(number: int, slot: Array) -> None:
        span = rounds.span(bounds, 0, number)
        slot[rounds.place(0, span)] = source[span]

    def read(number: int, slots: Slots) -> None:
        span = rounds.span(bounds, 0, number)
        if ranks:
            parts = [slot[rounds.place(0, span)] for slot in slots[:ranks]]
            rounds.combine(parts, work[span], last=complete)

    rounds.run(bounds, write, read)


def broadcast(task: Task, make: MakeRounds = Rounds) -> None:
    """Overwrite `work` by the root's `source`."""
    rounds = make(task, False)
    bounds, root = (0, task.work.size), task.root

    def write(number: int, slot: Array) -> None:
        if rounds.rank == root:
            span = rounds.span(bounds, 0, number)
            slot[rounds.place(0, span)] = task.source[span]

    def read(number: int, slots: Slots) -> None:
        if rounds.rank != root:
            span = rounds.span(bounds, 0, number)
            task.work[span] = slots[root][rounds.place(0, span)]

    rounds.run(bounds, write, read)
    if rounds.rank == root and task.source is not task.work:
        task.work[:] = task.source


def all_gather(task: Task, make: MakeRounds = Rounds) -> None:
    """Fill `work` with everybody's block; the own one is in its place."""
    _gather(task, task.group.size > 0, make)


def gather(task: Task, make: MakeRounds = Rounds) -> None:
    """Fill the root's `work` with everybody's block; the own one is in its place."""
    _gather(task, task.group.rank == task.root, make)


def _gather(task: Task, wanted: bool, make: MakeRounds) -> None:
    rounds = make(task, False)
    rank, work, bounds = rounds.rank, task.work, task.bounds

    def write(number: int, slot: Array) -> None:
        if not wanted or task.root < 0:
            span = rounds.span(bounds, rank, number)
            slot[rounds.place(0, span)] = work[span]

    def read(number: int, slots: Slots) -> None:
        if wanted:
            for block, slot in enumerate(slots):
                if block != rank:
                    span = rounds.span(bounds, block, number)
                    work[span] = slot[rounds.place(0, span)]

    rounds.run(bounds, write, read)


def scatter(task: Task, make: MakeRounds = Rounds) -> None:
    """Give each rank its block of the root's `source`, in its place in `work`."""
    rounds = make(task, True)
    rank, root, bounds = rounds.rank, task.root, task.bounds

    def write(number: int, slot: Array) -> None:
        if rank == root:
            for block in range(rounds.size):
                if block != rank:
                    span = rounds.span(bounds, block, number)
                    slot[rounds.place(block, span)] = task.source[span]

    def read(number: int, slots: Slots) -> None:
        if rank != root:
            span = rounds.span(bounds, rank, number)
            task.work[span] = slots[root][rounds.place(rank, span)]

    rounds.run(bounds, write, read)


def all_to_all(task: Task, make: MakeRounds = Rounds) -> None:
    """Send each rank its block of `source`; fill `work` with what all have sent."""
    rounds = make(task, True)
    rank, outgoing, incoming = rounds.rank, task.source_bounds, task.bounds
    assert outgoing is not None

    def write(number: int, slot: Array) -> None:
        for block in range(rounds.size):
            if block != rank:
                span = rounds.span(outgoing, block, number)
                slot[rounds.place(block, span)] = task.source[span]

    def read(number: int, slots: Slots) -> None:
        for block, slot in enumerate(slots):
            if block != rank:
                span = rounds.span(incoming, block, number)
                task.work[span] = slot[rounds.place(rank, span)]

    rounds.run(outgoing, write, read)
