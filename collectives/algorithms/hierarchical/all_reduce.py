"""All-reduce: sums inside hosts, their sums between hosts, and the result inside.

Each host adds up what its own ranks have, in memory; a sum crosses the network once, on
all *lanes* (lanes.py) at a time; and the result is spread in memory again. Of n bytes
on h hosts each host sends 2 n (h-1)/h, the least possible, whatever the number of its
ranks. With one lane, the work of one rank a host, this is the hierarchical copy of
TensorFlow. The rounds are those of lane_sum.py.

Between two hosts the carriers exchange their sums: each sends n bytes, in one step.
Between more, each host adds up its block of a segment, and sends the result to all.
Inside a host and between hosts everything is added from left to right, each element in
one place, or in the same order on both hosts: all ranks get the same bits.
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
from collectives.partition import even_bounds


def all_reduce(task: Task) -> None:
    """Leave the sum in everybody's `work`, all ranks of a host using the network."""
    flowing_all_reduce(task, [task.source], [task.work])


def flowing_all_reduce(
    task: Task, sources: Sequence[Array], works: Sequence[Array]
) -> None:
    """Leave the sums of several arrays in as many others, one behind the other."""
    _Sum(task, sources, works).run()


def copying_all_reduce(task: Task) -> None:
    """Leave the sum in everybody's `work`, one rank of a host using the network."""
    _Sum(task, [task.source], [task.work], most_lanes=1).run()


class _Sum(LaneSum):
    """One all-reduce."""

    def __init__(
        self,
        task: Task,
        sources: Sequence[Array],
        works: Sequence[Array],
        most_lanes: int = 0,
    ) -> None:
        super().__init__(task, sources, works, most_lanes)
        crossing = self.crossing
        hosts, mine, length = (
            len(self.lanes.hosts),
            len(self.lanes.mine),
            crossing.length,
        )
        self.meets = hosts > 2
        """Whether a sum is made in two steps: by blocks, which are then sent to all."""
        self.lag = min(LAG if hosts > 1 else 1, len(self.cut))
        self.half = (self.lag + 1) // 2 if self.meets else self.lag
        share = -(-length // hosts) if self.meets else length
        self.sums, self.landing, self.results = crossing.rooms(
            (self.half + 1, mine, length),
            (self.half + 2, mine, hosts - 1, share),
            (self.lag + 1, mine, length),
        )
        self.ahead = len(self.landing)

    def share(self, size: int, host: int) -> slice:
        """Return what of a lane's segment a host adds up: a block of it, or all."""
        if not self.meets:
            return slice(0, size)
        bounds = even_bounds(size, len(self.lanes.hosts))
        return slice(bounds[host], bounds[host + 1])

    def expect(self, number: int) -> None:
        """Start to receive the others' sums of this rank's share of a segment."""
        for lane, index, size in self.cut.loads(number):
            own = self.share(size, self.lanes.host)
            room = self.landing[number % len(self.landing), index]
            for place, host in enumerate(self.lanes.far):
                peer, data = self.lanes.carrier(host, lane), room[place]
                data = data[: own.stop - own.start]
                self.crossing.receive(HERE, number, lane, peer, data)

    def add(self, number: int, slots: list[Array]) -> None:
        """Add up this rank's lanes on this host, and send them to the others."""
        crossing, lanes, length = self.crossing, self.lanes, self.crossing.length
        sums = self.sums[number % len(self.sums)]
        for lane in lanes.mine:
            crossing.wait(SENT, number - len(self.sums), lane)
        for lane, low, high, array, start, stop in self.cut.pieces(number):
            if lane in lanes.mine:
                parts = [slot[low:high] for slot in slots]
                parts[lanes.place] = self.sources[array][start:stop]
                first = lane * length
                total = sums[lanes.mine.index(lane), low - first : high - first]
                crossing.combine(parts, total, last=False)
        for lane, index, size in self.cut.loads(number):
            crossing.wait(RESULT_SENT, number - len(self.results), lane)
            result = self.results[number % len(self.results), index]
            for host in lanes.far:
                share, peer = self.share(size, host), lanes.carrier(host, lane)
                if self.meets:
                    crossing.receive(RESULT_HERE, number, lane, peer, result[share])
                crossing.send(SENT, number, lane, peer, sums[index, share])

    def meet(self, number: int) -> None:
        """Add up this host's share of a segment over all hosts, and send it to all."""
        lanes = self.lanes
        for lane, index, size in self.cut.loads(number):
            self.crossing.wait(HERE, number, lane)
            own = self.share(size, lanes.host)
            room = self.landing[number % len(self.landing), index]
            parts = {
                host: room[place, : own.stop - own.start]
                for place, host in enumerate(lanes.far)
            }
            parts[lanes.host] = self.sums[number % len(self.sums), index, own]
            result = self.results[number % len(self.results), index, own]
            self.crossing.combine([parts[host] for host in sorted(parts)], result, True)
            for host in lanes.far if self.meets else ():
                peer = lanes.carrier(host, lane)
                self.crossing.send(RESULT_SENT, number, lane, peer, result)
        if number >= 0:
            self.expect(number + len(self.landing))
