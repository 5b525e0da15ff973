"""Broadcast and reduce on two levels: along a chain of hosts, on all lanes.

The chain begins, or ends, at the root's host. What a carrier gets from the host before
goes on to the next one, segment by segment, and into memory. ::

    broadcast   root's host ──► next ──► … ──► last        n bytes from each host
    reduce      root's host ◄── last ◄── … ◄── next        but one

A segment takes h - 1 steps; all of them together n bytes of each link, the least
possible, and h - 2 steps more. Inside a host see shared.py.
"""

from __future__ import annotations

from collectives.algorithms.hierarchical.crossing import HERE, LAG, SENT, Crossing
from collectives.algorithms.hierarchical.lane_rounds import LaneRounds
from collectives.algorithms.stepwise import Task
from collectives.kernels import Array
from collectives.lanes import lanes_of


class _Chain:
    """One call: its lanes, and this host's place in the chain."""

    def __init__(self, task: Task, first: int) -> None:
        """Begin the chain at the host that comes `first` after the root's."""
        count = lanes_of(task.group.topology).count
        self.crossing = crossing = Crossing(task, count)
        self.task, self.lanes = task, crossing.lanes
        self.cut = LaneRounds(crossing, [task.work.size])
        hosts, here = len(self.lanes.hosts), self.lanes.host
        self.root_host = task.group.topology.host_of[task.root]
        self.is_root = task.group.rank == task.root
        place = (here - self.root_host - first) % hosts
        self.is_first, self.is_last = place == 0, place == hosts - 1
        self.before, self.after = (here - 1) % hosts, (here + 1) % hosts
        self.root_place = self.lanes.hosts[self.root_host].index(task.root)

    def pass_on(self, number: int, lane: int, data: Array) -> None:
        """Send a segment of a lane to the next host, if there is one."""
        if not self.is_last:
            peer = self.lanes.carrier(self.after, lane)
            self.crossing.send(SENT, number, lane, peer, data)


def broadcast(task: Task) -> None:
    """Overwrite `work` by the root's `source`."""
    chain = _Chain(task, first=0)
    if chain.is_first:
        _spread(chain)
    else:
        _hand_on(chain)
    if chain.is_root and task.source is not task.work:
        task.work[:] = task.source


def _spread(chain: _Chain) -> None:
    """Broadcast on the host of the root."""
    crossing, lanes, task = chain.crossing, chain.lanes, chain.task
    origin = task.source if chain.is_root else task.work

    def step(number: int, slots: list[Array]) -> None:
        slot = slots[chain.root_place]
        pieces = chain.cut.pieces(number)
        if chain.is_root and len(slots) > 1:
            for _, low, high, _, start, stop in pieces:
                slot[low:high] = task.source[start:stop]
        crossing.hand_over()
        for lane, low, high, _, start, stop in pieces:
            if not chain.is_root:
                task.work[start:stop] = slot[low:high]
            if lane in lanes.mine:
                crossing.wait(SENT, number - LAG, lane)
                chain.pass_on(number, lane, origin[start:stop])

    crossing.run(len(chain.cut), step)


def _hand_on(chain: _Chain) -> None:
    """Broadcast on the other hosts."""
    crossing, lanes, work = chain.crossing, chain.lanes, chain.task.work

    def expect(number: int) -> None:
        for lane, _, _, _, start, stop in chain.cut.pieces(number):
            if lane in lanes.mine:
                peer = lanes.carrier(chain.before, lane)
                crossing.receive(HERE, number, lane, peer, work[start:stop])

    def step(number: int, slots: list[Array]) -> None:
        pieces = chain.cut.pieces(number)
        for lane, low, high, _, start, stop in pieces:
            if lane in lanes.mine:
                crossing.wait(HERE, number, lane)
                crossing.wait(SENT, number - LAG, lane)
                chain.pass_on(number, lane, work[start:stop])
                slots[lanes.place][low:high] = work[start:stop]
        expect(number + LAG)
        crossing.hand_over()
        for lane, low, high, _, start, stop in pieces:
            if lane not in lanes.mine:
                work[start:stop] = slots[lanes.place_of(lane)][low:high]

    for number in range(LAG):
        expect(number)
    crossing.run(len(chain.cut), step)


def reduce(task: Task) -> None:
    """Leave the sum in the root's `work`; the hosts add theirs along the chain."""
    chain = _Chain(task, first=1)
    crossing, lanes, cut = chain.crossing, chain.lanes, chain.cut
    length, lag = crossing.length, 0 if chain.is_first else LAG
    lag = max(lag, chain.is_last)  # the result of a round is read after the next one
    sums, landing = crossing.rooms(
        (LAG + 1, len(lanes.mine), length), (LAG + 2, len(lanes.mine), length)
    )

    def expect(number: int) -> None:
        for lane, index, size in cut.loads(number):
            if not chain.is_first:
                peer = lanes.carrier(chain.before, lane)
                data = landing[number % len(landing), index, :size]
                crossing.receive(HERE, number, lane, peer, data)

    def meet(number: int, slot: Array) -> None:
        """Add what comes along the chain, and pass it on, or to the root."""
        for lane, index, size in cut.loads(number):
            crossing.wait(HERE, number, lane)
            total = sums[number % len(sums), index, :size]
            before = landing[number % len(landing), index, :size]
            parts = [total] if chain.is_first else [before, total]
            crossing.combine(parts, total, chain.is_last)
            chain.pass_on(number, lane, total)
            if chain.is_last:
                slot[lane * length :][:size] = total
        if number >= 0:
            expect(number + len(landing))

    def step(number: int, slots: list[Array]) -> None:
        for lane, low, high, _, start, stop in cut.pieces(number):
            if lane not in lanes.mine:
                slots[lanes.place][low:high] = task.source[start:stop]
        if lag:
            meet(number - lag, slots[lanes.place])
        crossing.hand_over()
        ring = sums[number % len(sums)]
        for lane, low, high, _, start, stop in cut.pieces(number):
            if lane in lanes.mine:
                crossing.wait(SENT, number - len(sums), lane)
                parts = [slot[low:high] for slot in slots]
                parts[lanes.place] = task.source[start:stop]
                total = ring[lanes.mine.index(lane), : stop - start]
                crossing.combine(parts, total, last=False)
        if not lag:
            meet(number, slots[lanes.place])
        if chain.is_root:
            for lane, low, high, _, start, stop in cut.pieces(number - lag):
                slot = slots[lanes.place_of(lane)]
                task.work[start:stop] = slot[low:high]

    for number in range(len(landing)):
        expect(number)
    crossing.run(len(cut) + lag, step)
