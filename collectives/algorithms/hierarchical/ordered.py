"""All-reduce on two levels that adds strictly by rank: a chain of hosts, on all lanes.

For ranks that are placed host by host. Of each lane the first host adds up what its
ranks have; the next one adds its ranks' parts to that, one after the other, and so on;
the last one has the sum, which goes back along the chain::

    host 0                  host 1                           host 2
    x0 + x1  ────────────►  (x0 + x1) + x2 + x3  ─────────►  … + x4 + x5
    sum      ◄────────────  sum                  ◄─────────  sum

Every element is `((x0 + x1) + x2) + …`, the bits of `chain` and `pairwise`. Of two
hosts each sends n bytes, as in any other order; of more, those in the middle send 2n.
A host keeps its ranks' parts of a segment until what comes along the chain is here.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives.algorithms.hierarchical.crossing import (
    HERE,
    LAG,
    RESULT_HERE,
    RESULT_SENT,
    SENT,
)
from collectives.algorithms.hierarchical.lane_sum import LaneSum
from collectives.algorithms.stepwise import Task
from collectives.kernels import Array


def ordered_all_reduce(task: Task) -> None:
    """Leave the sum, added in the order of ranks, in everybody's `work`."""
    flowing_ordered_all_reduce(task, [task.source], [task.work])


def flowing_ordered_all_reduce(
    task: Task, sources: Sequence[Array], works: Sequence[Array]
) -> None:
    """Leave the sums of several arrays in as many others, one behind the other."""
    _OrderedSum(task, sources, works).run()


class _OrderedSum(LaneSum):
    """One all-reduce."""

    def __init__(
        self, task: Task, sources: Sequence[Array], works: Sequence[Array]
    ) -> None:
        super().__init__(task, sources, works)
        lanes, mine, length = self.lanes, len(self.lanes.mine), self.crossing.length
        self.is_first = lanes.host == 0
        self.is_last = lanes.host == len(lanes.hosts) - 1
        self.half = min(LAG, len(self.cut))
        self.lag = 2 * self.half
        locals_ = len(lanes.hosts[lanes.host])
        self.kept, self.landing, self.sums, self.results = self.crossing.rooms(
            (self.half + 1, mine, locals_, length),
            (self.half + 2, mine, 0 if self.is_first else length),
            (self.half + 1, mine, 0 if self.is_last else length),
            (self.lag + 1, mine, length),
        )
        self.ahead = len(self.landing)

    def expect(self, number: int) -> None:
        """Start to receive what the host before has added up."""
        if self.is_first:
            return
        for lane, index, size in self.cut.loads(number):
            peer = self.lanes.carrier(self.lanes.host - 1, lane)
            data = self.landing[number % len(self.landing), index, :size]
            self.crossing.receive(HERE, number, lane, peer, data)

    def add(self, number: int, slots: list[Array]) -> None:
        """Keep what the ranks of this host have of this rank's lanes."""
        mine, length = self.lanes.mine, self.crossing.length
        kept = self.kept[number % len(self.kept)]
        for lane, low, high, array, start, stop in self.cut.pieces(number):
            if lane in mine:
                first = lane * length
                rows = kept[mine.index(lane), :, low - first : high - first]
                for place, (row, slot) in enumerate(zip(rows, slots, strict=True)):
                    is_own = place == self.lanes.place
                    row[:] = (
                        self.sources[array][start:stop] if is_own else slot[low:high]
                    )

    def meet(self, number: int) -> None:
        """Add this host's parts to what comes along the chain, and pass it on."""
        crossing, lanes = self.crossing, self.lanes
        for lane, index, size in self.cut.loads(number):
            crossing.wait(HERE, number, lane)
            crossing.wait(SENT, number - len(self.sums), lane)
            crossing.wait(RESULT_SENT, number - len(self.results), lane)
            parts = list(self.kept[number % len(self.kept), index, :, :size])
            if not self.is_first:
                parts.insert(0, self.landing[number % len(self.landing), index, :size])
            result = self.results[number % len(self.results), index, :size]
            if self.is_last:
                crossing.combine(parts, result, last=True)
                continue
            total = self.sums[number % len(self.sums), index, :size]
            crossing.combine(parts, total, last=False)
            peer = lanes.carrier(lanes.host + 1, lane)
            crossing.receive(RESULT_HERE, number, lane, peer, result)
            crossing.send(SENT, number, lane, peer, total)
        if number >= 0:
            self.expect(number + len(self.landing))

    def arrived(self, number: int) -> None:
        """Wait for the results of a segment, and pass them back."""
        super().arrived(number)
        if self.is_first:
            return
        for lane, index, size in self.cut.loads(number):
            peer = self.lanes.carrier(self.lanes.host - 1, lane)
            result = self.results[number % len(self.results), index, :size]
            self.crossing.send(RESULT_SENT, number, lane, peer, result)
