"""All-gather, gather, scatter and reduce-scatter on two levels: a block for each rank.

Each block crosses the network once for each host that needs it, carried by the ranks
that have the same place on their hosts; inside a host it goes through memory. Blocks
may be of any lengths, and ranks on hosts as they like. Of an all-gather with n bytes in
the end each host gets what it has not, in one step; of a reduce-scatter each host sends
its sums of what the others add up, in one step. A gather brings all of that to the
root's host only, where all ranks receive for the root; a scatter is the way back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from collectives.algorithms.hierarchical.crossing import HERE, LAG, SENT, Crossing
from collectives.algorithms.stepwise import Task
from collectives.kernels import Array


class Blocks:
    """One call: how its blocks are cut into rounds, and who carries which."""

    def __init__(self, task: Task) -> None:
        self.task, self.rank, size = task, task.group.rank, task.group.size
        self.crossing = crossing = Crossing(task, size)
        lanes = self.lanes = crossing.lanes
        self.rounds = self.rounds_of(high - low for low, high in pairwise(task.bounds))
        places = {
            rank: place for ranks in lanes.hosts for place, rank in enumerate(ranks)
        }
        self.carriers = [lanes.place_of(places[block]) for block in range(size)]
        """The place on this host of the carrier of each block."""
        self.mine = [b for b in range(size) if self.carriers[b] == lanes.place]
        """The blocks that this rank carries, its own among them."""
        self.peers = [(host, lanes.carrier(host, lanes.place)) for host in lanes.far]
        """Who carries this rank's block on the other hosts."""

    def rounds_of(self, lengths: Iterable[int]) -> int:
        """Return how many rounds the longest of some blocks takes."""
        return -(-max(lengths) // self.crossing.length)

    def span(
        self, block: int, number: int, bounds: Sequence[int] | None = None
    ) -> slice:
        """Return what of a block goes in a round; empty before and behind it."""
        if number < 0:
            return slice(0, 0)
        bounds = self.task.bounds if bounds is None else bounds
        low, end = bounds[block], bounds[block + 1]
        low = min(low + number * self.crossing.length, end)
        return slice(low, min(low + self.crossing.length, end))

    def place(self, block: int, span: slice) -> slice:
        """Return where in a slot that lies."""
        start = block * self.crossing.length
        return slice(start, start + span.stop - span.start)


def all_gather(task: Task) -> None:
    """Fill `work` with everybody's block; the own one is in its place."""
    everywhere = range(len(task.group.topology.hosts))
    _bring(task, everywhere, wanted=True)


def gather(task: Task) -> None:
    """Fill the root's `work` with everybody's block; the own one is in its place.

    The others' `work` has room for all, of which they use what they carry.
    """
    host = task.group.topology.host_of[task.root]
    _bring(task, [host], wanted=task.group.rank == task.root)


def _bring(task: Task, hosts: Sequence[int], wanted: bool) -> None:
    """Bring all blocks to some hosts, and there into the `work` of who wants them."""
    blocks = Blocks(task)
    crossing, rank, mine, work = blocks.crossing, blocks.rank, blocks.mine, task.work
    far = [b for b in mine if b != rank and blocks.lanes.host in hosts]
    peers = [(host, peer) for host, peer in blocks.peers if host in hosts]

    def start(number: int) -> None:
        for block in far:
            data = work[blocks.span(block, number)]
            crossing.receive(HERE, number, block, block, data)
        for host, peer in peers:
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
            if wanted and block not in mine:
                span = blocks.span(block, number)
                work[span] = slots[carrier][blocks.place(block, span)]

    for number in range(LAG):
        start(number)
    crossing.run(blocks.rounds, step)


def scatter(task: Task) -> None:
    """Give each rank its block of the root's `source`, in its place in `work`."""
    blocks = Blocks(task)
    if blocks.lanes.host == task.group.topology.host_of[task.root]:
        _hand_out(blocks)
    else:
        _get(blocks)


def _hand_out(blocks: Blocks) -> None:
    """Scatter on the host of the root."""
    crossing, lanes, task = blocks.crossing, blocks.lanes, blocks.task
    rank, far = blocks.rank, [block for block in blocks.mine if block != blocks.rank]
    root_place = lanes.hosts[lanes.host].index(task.root)
    is_root = rank == task.root
    (copies,) = crossing.rooms((LAG, len(far), 0 if is_root else crossing.length))

    def step(number: int, slots: list[Array]) -> None:
        slot = slots[root_place]
        for block, carrier in enumerate(blocks.carriers):
            if is_root and carrier != root_place:
                span = blocks.span(block, number)
                slot[blocks.place(block, span)] = task.source[span]
        crossing.hand_over()
        for index, block in enumerate(far):
            span = blocks.span(block, number)
            crossing.wait(SENT, number - LAG, block)
            data = task.source[span]
            if not is_root:
                data = copies[number % LAG, index, : span.stop - span.start]
                data[:] = slot[blocks.place(block, span)]
            crossing.send(SENT, number, block, block, data)
        if not is_root:
            span = blocks.span(rank, number)
            task.work[span] = slot[blocks.place(rank, span)]

    crossing.run(blocks.rounds, step)


def _get(blocks: Blocks) -> None:
    """Scatter on the other hosts."""
    crossing, rank, task = blocks.crossing, blocks.rank, blocks.task
    root_host = task.group.topology.host_of[task.root]
    carrier = blocks.lanes.carrier(root_host, blocks.lanes.place)

    def expect(number: int) -> None:
        data = task.work[blocks.span(rank, number)]
        crossing.receive(HERE, number, rank, carrier, data)

    def step(number: int, slots: list[Array]) -> None:
        crossing.wait(HERE, number, rank)
        expect(number + LAG)
        crossing.hand_over()

    for number in range(LAG):
        expect(number)
    crossing.run(blocks.rounds, step)


def reduce_scatter(task: Task) -> None:
    """Leave this rank's block, combined, in its place in `work`."""
    blocks = Blocks(task)
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
