"""What all-reduces on two levels have in common: from ranks to carriers, and back.

It goes in rounds, as in shared.py, with the network in between::

    round        r              r + 1          …   r + lag
    memory    give, add up   (other segments)      spread the result
    network              send ───────────────────►

In round r every rank *gives* the others their lanes of segment r; after the hand-over
the carrier of a lane adds it up and sends it to other hosts. While it is on its way,
segments r + 1 and so on follow. `lag` rounds later the result is here and goes into the
same slot as what is given then. So one hand-over a round is enough, and the network has
something to do while memory works.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives.algorithms.hierarchical.crossing import RESULT_HERE, Crossing
from collectives.algorithms.hierarchical.lane_rounds import LaneRounds
from collectives.algorithms.stepwise import Task
from collectives.kernels import Array
from collectives.lanes import lanes_of


class LaneSum:
    """One all-reduce; a subclass says what happens to the sums between hosts."""

    half: int
    """After so many rounds `meet` is called for a segment."""
    ahead: int
    """For so many rounds it is expected in advance what other hosts send."""
    lag: int
    """After so many rounds its result is there."""
    results: Array
    """Those of this rank's lanes, by round, lane and element."""

    def __init__(
        self,
        task: Task,
        sources: Sequence[Array],
        works: Sequence[Array],
        most_lanes: int = 0,
    ) -> None:
        count = lanes_of(task.group.topology, most_lanes).count
        self.crossing = crossing = Crossing(task, count, most_lanes)
        self.sources, self.works, self.lanes = sources, works, crossing.lanes
        self.cut = LaneRounds(crossing, [source.size for source in sources])

    def run(self) -> None:
        """Go through all rounds; there is none where there is nothing to add."""
        for number in range(self.ahead):
            self.expect(number)
        self.crossing.run(len(self.cut) + self.lag, self.step)

    def step(self, number: int, slots: list[Array]) -> None:
        """Go through one round."""
        own = slots[self.lanes.place]
        self.give(number, own)
        self.meet(number - self.half)
        self.deliver(number - self.lag, own)
        self.crossing.hand_over()
        self.add(number, slots)
        self.take(number - self.lag, slots)

    def expect(self, number: int) -> None:
        """Start to receive what other hosts send of a segment."""
        raise NotImplementedError

    def add(self, number: int, slots: list[Array]) -> None:
        """Take this host's parts of this rank's lanes."""
        raise NotImplementedError

    def meet(self, number: int) -> None:
        """Bring together what the hosts have of a segment."""
        raise NotImplementedError

    def arrived(self, number: int) -> None:
        """Wait for the results of a segment."""
        for lane, _, _ in self.cut.loads(number):
            self.crossing.wait(RESULT_HERE, number, lane)

    def give(self, number: int, slot: Array) -> None:
        """Copy what the others carry into this rank's slot."""
        for lane, low, high, array, start, stop in self.cut.pieces(number):
            if lane not in self.lanes.mine:
                slot[low:high] = self.sources[array][start:stop]

    def deliver(self, number: int, slot: Array) -> None:
        """Put the results of this rank's lanes into its slot, and where they belong."""
        mine, length = self.lanes.mine, self.crossing.length
        results = self.results[number % len(self.results)]
        self.arrived(number)
        for lane, index, size in self.cut.loads(number):
            slot[lane * length :][:size] = results[index, :size]
        for lane, low, high, array, start, stop in self.cut.pieces(number):
            if lane in mine:
                result, first = results[mine.index(lane)], lane * length
                self.works[array][start:stop] = result[low - first : high - first]

    def take(self, number: int, slots: list[Array]) -> None:
        """Copy the results of the lanes that others carry."""
        for lane, low, high, array, start, stop in self.cut.pieces(number):
            if lane not in self.lanes.mine:
                slot = slots[self.lanes.place_of(lane)]
                self.works[array][start:stop] = slot[low:high]
