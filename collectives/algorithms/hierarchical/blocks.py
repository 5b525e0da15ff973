"""All-gather and reduce-scatter on two levels: a block for each rank.

Each block crosses the network once for each host that needs it, carried by the ranks
that have the same place on their hosts; inside a host it goes through memory. Blocks
may be of any lengths, and ranks on hosts as they like. Of an all-gather with n bytes in
the end each host gets what it has not, in one step; of a reduce-scatter each host sends
its sums of what the others add up, in one step.
"""

from __future__ import annotations

from itertools import pairwise

from collectives.algorithms.hierarchical.crossing import HERE, LAG, SENT, Crossing
from collectives.algorithms.stepwise import Task
from collectives.kernels import Array


class _Blocks:
    """One call: how its blocks are cut into rounds, and who carries which."""

    def __init__(self, task: Task) -> None:
        self.task, self.rank, size = task, task.group.rank, task.group.size
        self.crossing = crossing = Crossing(task, size)
        lanes = self.lanes = crossing.lanes
        longest = max(high - low for low, high in pairwise(task.bounds))
        self.rounds = -(-longest // crossing.length)
        places = {
            rank: place for ranks in lanes.hosts for place, rank in enumerate(ranks)
        }
        self.carriers = [lanes.place_of(places[block]) for block in range(size)]
        """The place on this host of the carrier of each block."""
        self.mine = [b for b in range(size) if self.carriers[b] == lanes.place]
        """The blocks that this rank carries, its own among them."""
        self.peers = [(host, lanes.carrier(host, lanes.place)) for host in lanes.far]
        """Who carries this rank's block on the other hosts."""

    def span(self, block: int, number: int) -> slice:
        """Return what of a block goes in a round; empty before and behind it."""
        if number < 0:
            return slice(0, 0)
        low, end = self.task.bounds[block], self.task.bounds[block + 1]
        low = min(low + number * self.crossing.length, end)
        return slice(low, min(low + self.crossing.length, end))

    def place(self, block: int, span: slice) -> slice:
        """Return where in a slot that lies."""
        start = block * self.crossing.length
        return slice(start, start + span.stop - span.start)


def all_gather(task: Task) -> None:
    """Fill `work` with everybody's block; the own one is in its place."""
    blocks = _Blocks(task)
    crossing, rank, mine, work = blocks.crossing, blocks.rank, blocks.mine, task.work
    far = [block for block in mine if block != rank]

    def start(number: int) -> None:
        for block in far:
            data = work[blocks.span(block, number)]
            crossing.receive(HERE, number, block, block, data)
        for host, peer in blocks.peers:
            crossing.wait(SENT, number - LAG, host)
            crossing.send(SENT, number, host, peer, work[blocks.span(rank, number)])

    def step(number: int, slots: list[Array]) -> None:
        slot = slots[blocks.lanes.place]
        for block in (rank, *far):
            crossing.wait(HERE, number, block)
            span = blocks.span(block, number)
            slot[blocks.place(block, span)] = work[span]
        start(number + LAG)
        crossing.hand_over()
        for block, carrier in enumerate(blocks.carriers):
            if block not in mine:
                span = blocks.span(block, number)
                work[span] = slots[carrier][blocks.place(block, span)]

    for number in range(LAG):
        start(number)
    crossing.run(blocks.rounds, step)


def reduce_scatter(task: Task) -> None:
    """Leave this rank's block, combined, in its place in `work`."""
    blocks = _Blocks(task)
    crossing, rank, mine = blocks.crossing, blocks.rank, blocks.mine
    lanes, length, source = blocks.lanes, crossing.length, task.source
    lag = min(LAG, blocks.rounds)
    sums, landing = crossing.rooms(
        (lag + 1, len(mine), length), (lag + 2, len(lanes.far), length)
    )

    def arrived(number: int) -> list[Array]:
        span = blocks.span(rank, number)
        return [row[: span.stop - span.start] for row in landing[number % len(landing)]]

    def expect(number: int) -> None:
        rooms = arrived(number)
        for (host, peer), room in zip(blocks.peers, rooms, strict=True):
            crossing.receive(HERE, number, host, peer, room)

    def add(number: int, slots: list[Array]) -> None:
        """Add up what this host has of the blocks that this rank carries."""
        for index, block in enumerate(mine):
            crossing.wait(SENT, number - len(sums), block)
            span = blocks.span(block, number)
            place = blocks.place(block, span)
            parts = [slot[place] for slot in slots]
            parts[lanes.place] = source[span]
            total = sums[number % len(sums), index, : span.stop - span.start]
            crossing.combine(parts, total, last=False)
            if block != rank:
                crossing.send(SENT, number, block, block, total)

    def meet(number: int) -> None:
        """Add up this rank's block over all hosts."""
        if number < 0:
            return
        span = blocks.span(rank, number)
        parts = {lanes.host: sums[number % len(sums), mine.index(rank)]}
        parts[lanes.host] = parts[lanes.host][: span.stop - span.start]
        for (host, _), room in zip(blocks.peers, arrived(number), strict=True):
            crossing.wait(HERE, number, host)
            parts[host] = room
        in_order = [parts[host] for host in sorted(parts)]
        crossing.combine(in_order, task.work[span], last=True)
        expect(number + len(landing))

    def step(number: int, slots: list[Array]) -> None:
        slot = slots[lanes.place]
        for block in range(len(blocks.carriers)):
            if block not in mine:
                span = blocks.span(block, number)
                slot[blocks.place(block, span)] = source[span]
        meet(number - lag)
        crossing.hand_over()
        add(number, slots)

    for number in range(len(landing)):
        expect(number)
    crossing.run(blocks.rounds + lag, step)
