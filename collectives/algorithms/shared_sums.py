"""Sums over all ranks through a window; see shared.py for the rounds.

Of every round each rank adds up one block and publishes the sum: a reduce-scatter into
the window. The others copy it out: an all-gather from the window. The two are one round
apart, so that one hand-over a round tells of both. What is put into the window first
can be there before the ranks agree on the call: then that is the first hand-over.

What lies in shared memory already (registered.py) is read where it is. A result that
does is written by whoever has added it up, into every rank's array, or only once where
it is common to the ranks. If both do, nothing is copied and two hand-overs are all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collectives.algorithms.rounds import MakeRounds, Rounds
from collectives.algorithms.stepwise import Task
from collectives.board import RESULT, SOURCE
from collectives.kernels import Array
from collectives.laid import Round, layout


def start_all_reduce(task: Task) -> Callable[[], None]:
    """Begin before the ranks agree; what is returned leaves the sum in all `work`."""
    summing = _Sum(task, [task.source], [task.work])
    summing.begin()
    return summing.end


def all_reduce(task: Task, make: MakeRounds = Rounds) -> None:
    """Leave the sum in everybody's `work`."""
    _Sum(task, [task.source], [task.work], make=make).run()


def reduce(task: Task, make: MakeRounds = Rounds) -> None:
    """Leave the sum in the root's `work`."""
    at_root = task.group.rank == task.root
    _Sum(task, [task.source], [task.work] if at_root else [], make=make).run()


def flowing_all_reduce(
    task: Task, sources: Sequence[Array], works: Sequence[Array]
) -> None:
    """Leave the sums of several arrays in as many others, one behind the other.

    What the arrays are is not looked up in `task`, except for their dtype.
    """
    _Sum(task, sources, works).run()


def common_all_reduce(task: Task) -> None:
    """Leave the sum in `work`, which is the same memory on all ranks."""
    _Sum(task, [task.source], [], task.work).run()


class _Sum:
    """One call: its rounds, and where the parts of each are to be found."""

    def __init__(
        self,
        task: Task,
        sources: Sequence[Array],
        works: Sequence[Array],
        common: Array | None = None,
        make: MakeRounds = Rounds,
    ) -> None:
        rounds = self.rounds = make(task, True)
        self.sources, self.works, self.common = sources, works, common
        sizes = tuple(source.size for source in sources)
        self.layout = layout(sizes, rounds.size, rounds.rank, rounds.length)
        place = self._place(sources)
        self.gives = place < 0
        rounds.board.write(SOURCE, place)
        rounds.board.write(RESULT, self._place(works))
        self.theirs: list[Array | None] = []
        self.targets: list[Array | None] = []
        self.agreed = False
        """Whether there has been a hand-over since the ranks agreed on the call."""

    def _place(self, arrays: Sequence[Array]) -> int:
        """Return where in the arena something lies that the others can find there."""
        return self.rounds.place_of(arrays[0]) if len(arrays) == 1 else -1

    def _found(self, word: int) -> list[Array | None]:
        """Return the arrays whose places have been told, by rank; nothing if none."""
        places = self.rounds.board.read(word)
        return self.rounds.found(places, self.sources[0]) if max(places) >= 0 else []

    def run(self) -> None:
        """Do it all, after the ranks have agreed on the call."""
        self.begin()
        if self.layout:
            self.rounds.hand_over()
        self.agreed = True
        self.end()

    def begin(self) -> None:
        """Do what can be done before the others are there."""
        if self.layout:
            self.give(0)

    def end(self) -> None:
        """Go through all rounds; there is none where there is nothing to add."""
        stranded = self.rounds.task.group.stranded
        stranded.append((self.sources, self.works))  # others may write there if we fail
        if self.layout:
            self._rounds()
        stranded.pop()

    def _rounds(self) -> None:
        rounds, steps, last = self.rounds, self.layout, len(self.layout) - 1
        self.theirs, self.targets = self._found(SOURCE), self._found(RESULT)
        known = _all_found(self.targets)
        to_all = known or self.common is not None
        in_place = to_all and _all_found(self.theirs)
        if known and not self.agreed:
            rounds.hand_over()  # who has given up meanwhile must not be written to
        for number, step in enumerate(steps):
            self.add(number, step, to_all)
            if in_place:
                continue
            if number < last:
                self.give(number + 1)
            rounds.hand_over()
            if not to_all and self.works:
                self.take(number, step)
        if in_place:
            rounds.hand_over()
        rounds.end(len(steps))

    def give(self, number: int) -> None:
        """Copy what the others add up into this rank's slot."""
        if self.gives:
            slot, sources = self.rounds.slots(number)[self.rounds.rank], self.sources
            for _, low, high, array, start, stop in self.layout[number].others:
                slot[low:high] = sources[array][start:stop]

    def add(self, number: int, step: Round, to_all: bool) -> None:
        """Add up this rank's block, for all to read, and into the results in reach."""
        rounds, slots = self.rounds, self.rounds.slots(number)
        rank, common = rounds.rank, self.common
        for _, low, high, array, start, stop in step.own:
            parts = [slot[low:high] for slot in slots]
            for peer, there in enumerate(self.theirs):
                if there is not None:
                    parts[peer] = there[start:stop]
            parts[rank] = self.sources[array][start:stop]
            total, goals = slots[rank][low:high], self.works[array : array + 1]
            if common is not None:
                total, goals = common[start:stop], ()
            elif to_all:
                goals = [target for target in self.targets if target is not None]
            rounds.combine(parts, total, copies=[goal[start:stop] for goal in goals])

    def take(self, number: int, step: Round) -> None:
        """Copy the sums of the others' blocks."""
        slots, works = self.rounds.slots(number), self.works
        for block, low, high, array, start, stop in step.others:
            works[array][start:stop] = slots[block][low:high]


def _all_found(arrays: Sequence[Array | None]) -> bool:
    """Tell whether all ranks have something that the others find."""
    return bool(arrays) and all(array is not None for array in arrays)
