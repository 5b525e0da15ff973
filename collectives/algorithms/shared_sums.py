"""Sums over all ranks through a window; see shared.py for the rounds.

Of every round each rank adds up one block and publishes the sum: a reduce-scatter into
the window. The others copy it out: an all-gather from the window. The two are one round
apart, so that one hand-over a round tells of both. What lies in shared memory already
(registered.py) is read where it is, and a result that is common to the ranks is added
up where it stays; then there is nothing to copy, and one round does it.
"""

from __future__ import annotations

import numpy as np

from collectives.algorithms.rounds import Rounds
from collectives.algorithms.stepwise import Task
from collectives.board import SOURCE
from collectives.kernels import Array
from collectives.laid import Laid
from collectives.partition import even_bounds
from collectives.registered import place_of


def all_reduce(task: Task) -> None:
    """Leave the sum in everybody's `work`."""
    laid_all_reduce(task, Laid([task.source]), Laid([task.work]))


def reduce(task: Task) -> None:
    """Leave the sum in the root's `work`."""
    at_root = task.group.rank == task.root
    _Sum(task, Laid([task.source]), Laid([task.work]) if at_root else None).run()


def laid_all_reduce(task: Task, source: Laid, work: Laid) -> None:
    """Leave the sums of several arrays in as many others, one behind the other."""
    _Sum(task, source, work).run()


def common_all_reduce(task: Task) -> None:
    """Leave the sum in `work`, which is the same memory on all ranks."""
    _Sum(task, Laid([task.source]), None, task.work).run()


class _Sum:
    """One call: its blocks, and where the parts of each are to be found."""

    def __init__(
        self, task: Task, source: Laid, work: Laid | None, common: Array | None = None
    ) -> None:
        self.rounds = Rounds(task, divided=True)
        self.source, self.work, self.common = source, work, common
        self.rank, window = self.rounds.rank, self.rounds.window
        self.bounds = even_bounds(source.size, self.rounds.size)
        self.others = [b for b in range(self.rounds.size) if b != self.rank]
        place = (
            place_of(window.arena, source.flats[0]) if len(source.flats) == 1 else -1
        )
        self.rounds.board.write(SOURCE, place)
        self.gives = place < 0
        self.registered: list[Array | None] = []

    def run(self) -> None:
        """Go through all rounds."""
        rounds, window = self.rounds, self.rounds.window
        self.give(0)
        rounds.hand_over()
        places = rounds.board.read(SOURCE)
        self.registered = [
            None
            if place < 0
            else window.view(place, self.source.dtype, self.source.size)
            for place in places
        ]
        if self.common is not None and min(places) >= 0:
            rounds.length = max(1, self.source.size)  # nothing goes through a slot
        count = rounds.count(self.bounds)
        with np.errstate(all="ignore"):
            for number in range(count):
                self.add(number)
                if number + 1 < count:
                    self.give(number + 1)
                rounds.hand_over()
                if self.work is not None:
                    self.take(number, self.work)

    def give(self, number: int) -> None:
        """Copy what the others add up into this rank's slot."""
        if not self.gives:
            return
        rounds, slot = self.rounds, self.rounds.slots[number & 1][self.rank]
        for block in self.others:
            span = rounds.span(self.bounds, block, number)
            low = block * rounds.length
            for start, piece in self.source.pieces(span):
                slot[low + start : low + start + piece.size] = piece

    def add(self, number: int) -> None:
        """Add up this rank's block, into its slot or the common result."""
        rounds, slots = self.rounds, self.rounds.slots[number & 1]
        span = rounds.span(self.bounds, self.rank, number)
        low, shift = self.rank * rounds.length, span.start
        total = slots[self.rank] if self.common is None else self.common
        base = low if self.common is None else shift
        for start, piece in self.source.pieces(span):
            stop = start + piece.size
            parts = [
                slot[low + start : low + stop]
                if array is None
                else array[shift + start : shift + stop]
                for slot, array in zip(slots, self.registered, strict=True)
            ]
            parts[self.rank] = piece
            rounds.combine(parts, total[base + start : base + stop])
        if self.work is not None:
            for start, piece in self.work.pieces(span):
                piece[...] = total[low + start : low + start + piece.size]

    def take(self, number: int, work: Laid) -> None:
        """Copy the sums of the others' blocks."""
        rounds, slots = self.rounds, self.rounds.slots[number & 1]
        for block in self.others:
            span = rounds.span(self.bounds, block, number)
            low = block * rounds.length
            for start, piece in work.pieces(span):
                piece[...] = slots[block][low + start : low + start + piece.size]
