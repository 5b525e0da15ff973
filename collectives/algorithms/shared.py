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

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from collectives.algorithms.ordered import combine_in_order
from collectives.algorithms.stepwise import Task
from collectives.board import ROUNDS
from collectives.kernels import Array
from collectives.partition import Bounds, even_bounds

Slots = list[Array]


class _Rounds:
    """A task, its window, and how the one is cut to go through the other."""

    def __init__(self, task: Task, divided: bool) -> None:
        """Give each peer its part of a slot if `divided`; else a slot is one whole."""
        group, window = task.group, task.group.window
        assert window is not None, "to be opened before, see opening.py"
        self.task, self.rank, self.size = task, group.rank, group.size
        dtype = task.work.dtype
        self.slots = (window.slots(0, dtype), window.slots(1, dtype))
        self.length = max(
            1, min(window.length(dtype.itemsize), task.segment_bytes // dtype.itemsize)
        )
        if divided:
            self.length = max(1, self.length // group.size)
        self.widens = task.kernel is not None and task.kernel.work_dtype != dtype

    def span(self, bounds: Bounds, block: int, number: int) -> slice:
        """Return what round `number` moves of a block; empty behind its end."""
        low = bounds[block] + number * self.length
        return slice(low, min(low + self.length, bounds[block + 1]))

    def place(self, block: int, span: slice) -> slice:
        """Return where in a divided slot something for or from a rank lies."""
        start = block * self.length
        return slice(start, start + max(0, span.stop - span.start))

    def count(self, bounds: Bounds) -> int:
        """Return how many rounds these blocks take."""
        longest = max(high - low for low, high in pairwise(bounds))
        return -(-longest // self.length)

    def hand_over(self) -> None:
        self.task.group.hand_over(self.task.timeout_s)

    def run(
        self,
        bounds: Bounds,
        write: Callable[[int, Array], None],
        read: Callable[[int, Slots], None],
    ) -> None:
        """Go through the rounds that the longest block of any rank takes."""
        board = self.task.group.board
        assert board is not None, "a window needs a board"
        board.write(ROUNDS, self.count(bounds))
        number, last = 0, 1
        while number < last:
            slots = self.slots[number & 1]
            write(number, slots[self.rank])
            self.hand_over()
            if number == 0:
                last = max(board.read(ROUNDS))
            read(number, slots)
            number += 1

    def combine(self, parts: list[Array], target: Array, last: bool = True) -> None:
        """Put the sum, in rank order, into `target`, if there is anything to add."""
        if target.size:
            room = self.task.group.scratch(8 * target.size if self.widens else 0)
            combine_in_order(self.task, parts, target, room.view(np.float32), last)


def all_reduce(task: Task) -> None:
    """Add a block on each rank and publish it, one round behind the other."""
    _reduce(task, task.group.size > 0)


def reduce(task: Task) -> None:
    """Add a block on each rank; the root collects them."""
    _reduce(task, task.group.rank == task.root)


def _reduce(task: Task, wanted: bool) -> None:
    rounds = _Rounds(task, divided=True)
    rank, source, work = rounds.rank, task.source, task.work
    bounds = even_bounds(source.size, rounds.size)
    others = [block for block in range(rounds.size) if block != rank]
    count = rounds.count(bounds)

    def give(number: int) -> None:
        slot = rounds.slots[number & 1][rank]
        for block in others:
            span = rounds.span(bounds, block, number)
            slot[rounds.place(block, span)] = source[span]

    def add(number: int) -> None:
        slots, span = rounds.slots[number & 1], rounds.span(bounds, rank, number)
        place = rounds.place(rank, span)
        parts = [slot[place] for slot in slots]
        total, parts[rank] = parts[rank], source[span]
        rounds.combine(parts, total)
        if wanted:
            work[span] = total

    def take(number: int) -> None:
        slots = rounds.slots[number & 1]
        for block in others:
            span = rounds.span(bounds, block, number)
            work[span] = slots[block][rounds.place(block, span)]

    give(0)
    rounds.hand_over()
    with np.errstate(all="ignore"):
        for number in range(count):
            add(number)
            if number + 1 < count:
                give(number + 1)
            rounds.hand_over()
            if wanted:
                take(number)


def reduce_scatter(task: Task) -> None:
    """Leave this rank's block, combined, in its place in `work`."""
    rounds = _Rounds(task, divided=True)
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

    with np.errstate(all="ignore"):
        rounds.run(bounds, write, read)


def scan(task: Task) -> None:
    """Leave the sum of the ranks up to this one in `work`."""
    _scan(task, task.group.rank + 1)


def exclusive_scan(task: Task) -> None:
    """Leave the sum of the ranks before this one in `work`; rank 0's stays."""
    _scan(task, task.group.rank)


def _scan(task: Task, ranks: int) -> None:
    rounds = _Rounds(task, divided=False)
    bounds, source, work = (0, task.source.size), task.source, task.work

    def write(number: int, slot: Array) -> None:
        span = rounds.span(bounds, 0, number)
        slot[rounds.place(0, span)] = source[span]

    def read(number: int, slots: Slots) -> None:
        span = rounds.span(bounds, 0, number)
        if ranks:
            parts = [slot[rounds.place(0, span)] for slot in slots[:ranks]]
            rounds.combine(parts, work[span], last=False)

    with np.errstate(all="ignore"):
        rounds.run(bounds, write, read)


def broadcast(task: Task) -> None:
    """Overwrite `work` by the root's `source`."""
    rounds = _Rounds(task, divided=False)
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


def all_gather(task: Task) -> None:
    """Fill `work` with everybody's block; the own one is in its place."""
    _gather(task, task.group.size > 0)


def gather(task: Task) -> None:
    """Fill the root's `work` with everybody's block; the own one is in its place."""
    _gather(task, task.group.rank == task.root)


def _gather(task: Task, wanted: bool) -> None:
    rounds = _Rounds(task, divided=False)
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


def scatter(task: Task) -> None:
    """Give each rank its block of the root's `source`, in its place in `work`."""
    rounds = _Rounds(task, divided=True)
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


def all_to_all(task: Task) -> None:
    """Send each rank its block of `source`; fill `work` with what all have sent."""
    rounds = _Rounds(task, divided=True)
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
