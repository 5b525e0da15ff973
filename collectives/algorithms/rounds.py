"""What all that goes through a window has in common: rounds of hand-overs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from collectives.algorithms.ordered import combine_in_order
from collectives.algorithms.stepwise import Task
from collectives.board import ROUNDS
from collectives.kernels import Array
from collectives.partition import Bounds
from collectives.registered import place_of

Slots = list[Array]


class Slotted(Protocol):
    """What rounds need of a window, in the memory of a host or of its GPUs."""

    turn: int

    def length(self, itemsize: int) -> int:
        """Return how many elements a slot holds."""

    def slots(self, dtype: np.dtype[Any]) -> tuple[Slots, Slots]:
        """Return the slots of the two turns, by rank."""


class Rounds:
    """A task, its window, and how the one is cut to go through the other."""

    def __init__(
        self, task: Task, divided: bool, window: Slotted | None = None
    ) -> None:
        """Give each peer its part of a slot if `divided`; else a slot is one whole.

        The window is the group's, unless another one is given.
        """
        group, board = task.group, task.group.board
        window = window or group.window
        assert window is not None and board is not None, "see opening.py"
        self.task, self.rank, self.size = task, group.rank, group.size
        self.window, self.board = window, board
        dtype, kernel = task.work.dtype, task.kernel
        self._slots = window.slots(dtype)
        self.length = max(
            1, min(window.length(dtype.itemsize), task.segment_bytes // dtype.itemsize)
        )
        if divided:
            self.length = max(1, self.length // group.size)
        self.widens = kernel is not None and kernel.work_dtype != dtype

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

    def slots(self, number: int) -> Slots:
        """Return the slots of a round, by rank."""
        return self._slots[(self.window.turn + number) & 1]

    def end(self, count: int) -> None:
        """Let the next call begin with the slot that nobody reads any more."""
        self.window.turn += count

    def hand_over(self) -> None:
        """Wait until all have come to this point."""
        self.task.group.hand_over(self.task.timeout_s)

    def run(
        self,
        bounds: Bounds,
        write: Callable[[int, Array], None],
        read: Callable[[int, Slots], None],
    ) -> None:
        """Go through the rounds that the longest block of any rank takes."""
        board, word = self.board, ROUNDS + (self.window.turn & 1)
        board.write(word, self.count(bounds))
        number, last = 0, 1
        while number < last:
            slots = self.slots(number)
            write(number, slots[self.rank])
            self.hand_over()
            if number == 0:
                last = max(1, *board.read(word))
            read(number, slots)
            number += 1
        self.end(last)

    def combine(
        self,
        parts: list[Array],
        target: Array,
        last: bool = True,
        copies: Sequence[Array] = (),
    ) -> None:
        """Put the sum, in rank order, into `target`, if there is anything to add.

        Of the `copies`, which get the same, there may be one for each rank; nobody
        reads `target` then.
        """
        task, kernel = self.task, self.task.kernel
        if not target.size or kernel is None:
            return
        if not self.widens and len(parts) > 1 and not kernel.in_order:
            kernel.add_up(parts, target, task.group.divisor if last else 1)
        else:
            room = task.group.scratch(8 * target.size if self.widens else 0)
            with np.errstate(all="ignore"):
                combine_in_order(task, parts, target, room.view(np.float32), last)
        for copy in copies:
            copy[:] = target

    def place_of(self, array: Array) -> int:
        """Return where the others find a flat array; -1 if they do not."""
        window = self.task.group.window
        return -1 if window is None else place_of(window.arena, array)

    def found(self, places: list[int], like: Array) -> list[Array | None]:
        """Return arrays such as this one at those places, by rank."""
        window = self.task.group.window
        assert window is not None, "see opening.py"
        return [
            None if place < 0 else window.view(place, like.dtype, like.size)
            for place in places
        ]


MakeRounds = Callable[[Task, bool], Rounds]
"""Makes the rounds of a task, of divided slots or not; `Rounds` does."""
