"""Sums over all ranks through a window; see shared.py for the rounds.

Of every round each rank adds up one block and publishes the sum: a reduce-scatter into
the window. The others copy it out: an all-gather from the window. The two are one round
apart, so that one hand-over a round tells of both.

What lies in shared memory already (registered.py) is read where it is. A result that
does is written by whoever has added it up, into every rank's array, or only once where
it is common to the ranks. If both do, nothing is copied and two hand-overs are all.
"""

from __future__ import annotations

import numpy as np

from collectives.algorithms.rounds import Rounds
from collectives.algorithms.stepwise import Task
from collectives.board import RESULT, SOURCE
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
        rounds = self.rounds = Rounds(task, divided=True)
        self.source, self.work, self.common = source, work, common
        self.rank = rounds.rank
        self.bounds = even_bounds(source.size, rounds.size)
        self.others = [b for b in range(rounds.size) if b != self.rank]
        place = self._place(source)
        self.gives = place < 0
        rounds.board.write(SOURCE, place)
        rounds.board.write(RESULT, -1 if work is None else self._place(work))
        self.sources: list[Array | None] = []
        self.targets: list[Array | None] = []

    def _place(self, laid: Laid) -> int:
        """Return where in the arena something lies that the others can find there."""
        flats = laid.flats
        return place_of(self.rounds.window.arena, flats[0]) if len(flats) == 1 else -1

    def _found(self, word: int) -> list[Array | None]:
        """Return the arrays, by rank, that the ranks have told the places of."""
        view, dtype, size = self.rounds.window.view, self.source.dtype, self.source.size
        return [
            None if place < 0 else view(place, dtype, size)
            for place in self.rounds.board.read(word)
        ]

    def run(self) -> None:
        """Go through all rounds; there is none where there is nothing to add."""
        stranded = self.rounds.task.group.stranded
        stranded.append((self.source, self.work))  # others may write there, if we fail
        self._run()
        stranded.pop()

    def _run(self) -> None:
        rounds, count = self.rounds, self.rounds.count(self.bounds)
        if not count:
            return
        self.give(0)
        rounds.hand_over()
        self.sources, self.targets = self._found(SOURCE), self._found(RESULT)
        known = all(array is not None for array in self.targets)
        to_all = known or self.common is not None
        in_place = to_all and all(array is not None for array in self.sources)
        with np.errstate(all="ignore"):
            for number in range(count):
                self.add(number)
                if self.common is None:
                    self.put(number, to_all)
                if in_place:
                    continue
                if number + 1 < count:
                    self.give(number + 1)
                rounds.hand_over()
                if self.work is not None and not to_all:
                    self.take(number, self.work)
        if in_place:
            rounds.hand_over()
        rounds.end(count)

    def give(self, number: int) -> None:
        """Copy what the others add up into this rank's slot."""
        if not self.gives:
            return
        rounds, slot = self.rounds, self.rounds.slots(number)[self.rank]
        for block in self.others:
            span = rounds.span(self.bounds, block, number)
            low = block * rounds.length
            for start, piece in self.source.pieces(span):
                slot[low + start : low + start + piece.size] = piece

    def add(self, number: int) -> None:
        """Add up this rank's block, into its slot or the common result."""
        rounds, slots = self.rounds, self.rounds.slots(number)
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
                for slot, array in zip(slots, self.sources, strict=True)
            ]
            parts[self.rank] = piece
            rounds.combine(parts, total[base + start : base + stop])

    def put(self, number: int, to_all: bool) -> None:
        """Copy the sum of this rank's block into all results, or into its own one."""
        rounds = self.rounds
        span = rounds.span(self.bounds, self.rank, number)
        total = rounds.slots(number)[self.rank][rounds.place(self.rank, span)]
        if to_all:
            for array in self.targets:
                assert array is not None
                array[span] = total
        elif self.work is not None:
            for start, piece in self.work.pieces(span):
                piece[...] = total[start : start + piece.size]

    def take(self, number: int, work: Laid) -> None:
        """Copy the sums of the others' blocks."""
        rounds, slots = self.rounds, self.rounds.slots(number)
        for block in self.others:
            span = rounds.span(self.bounds, block, number)
            low = block * rounds.length
            for start, piece in work.pieces(span):
                piece[...] = slots[block][low + start : low + start + piece.size]
