"""All-reduce on two levels: memory inside a host, messages between hosts.

Each host adds up what its own ranks have, in memory; a sum crosses the network once, on
all *lanes* (lanes.py) at a time; and the result is spread in memory again. Of n bytes
on h hosts each host sends 2 n (h-1)/h, the least possible, whatever the number of its
ranks (Träff & Hunold, *Decomposing MPI collectives for exploiting multi-lane
communication*, CLUSTER 2020). With one lane, the work of one rank a host, this is the
hierarchical copy of TensorFlow.

It goes in rounds, as in shared.py, with the network in between::

    round        r              r + 1          …   r + lag
    memory    give, add up   (other segments)      spread the result
    network              send ───────────────────►

In round r every rank *gives* the others their lanes of segment r; after the hand-over
the carrier of a lane adds it up and sends it to the carriers on the other hosts. While
it is on its way, segments r + 1 and so on follow. `lag` rounds later the result is here
and goes into the same slot as what is given then. So one hand-over a round is enough,
and the network has something to do while memory works.

Between two hosts the carriers exchange their sums: each sends n bytes, in one step.
Between more, each host adds up its block of a segment, and sends the result to all.
Inside a host and between hosts everything is added from left to right, each element in
one place, or in the same order on both hosts: all ranks get the same bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collectives.algorithms.ordered import combine_in_order
from collectives.algorithms.stepwise import Task
from collectives.buffers import as_bytes
from collectives.group import RESULT_TAGS, SEQUENCE_BITS
from collectives.kernels import Array
from collectives.laid import Piece, layout
from collectives.lanes import lanes_of
from collectives.partition import even_bounds, segments
from collectives.transport import Pending
from collectives.window import slot_bytes

# Longer messages are asked for before they are sent, which takes Open MPI's TCP a third
# of its rate: 2 hosts x 2 ranks at 1 Gbit/s.
PIECE_BYTES = {"Open MPI": 60 << 10}
LAG = 6  # rounds: so many segments are on their way at once
NOTHING = np.empty(0, np.float32)
SUMS_SENT, SUMS_HERE, RESULTS_SENT, RESULTS_HERE = range(4)


def all_reduce(task: Task) -> None:
    """Leave the sum in everybody's `work`, all ranks of a host using the network."""
    flowing_all_reduce(task, [task.source], [task.work])


def flowing_all_reduce(
    task: Task, sources: Sequence[Array], works: Sequence[Array]
) -> None:
    """Leave the sums of several arrays in as many others, one behind the other."""
    _Sum(task, sources, works, lanes=0).run()


def copying_all_reduce(task: Task) -> None:
    """Leave the sum in everybody's `work`, one rank of a host using the network."""
    _Sum(task, [task.source], [task.work], lanes=1).run()


class _Sum:
    """One call: its lanes, its rounds, and what is on its way."""

    def __init__(
        self, task: Task, sources: Sequence[Array], works: Sequence[Array], lanes: int
    ) -> None:
        group, window = task.group, task.group.window
        assert window is not None, "see opening.py"
        self.task, self.group, self.window = task, group, window
        self.sources, self.works = sources, works
        self.lanes = lanes_of(group.topology, lanes)
        dtype, hosts, count = task.work.dtype, len(self.lanes.hosts), self.lanes.count
        # The same on every host, however many ranks it has.
        room = min(slot_bytes(max(map(len, self.lanes.hosts))), task.segment_bytes)
        self.length = max(1, room // dtype.itemsize // count)
        mpi = group.topology.mpi
        longest = PIECE_BYTES.get(mpi.vendor, room) if mpi is not None else room
        self.piece = max(1, longest // dtype.itemsize)
        sizes = tuple(source.size for source in sources)
        self.layout = layout(sizes, count, 0, self.length)
        self.blocks = even_bounds(sum(sizes), count)
        self.rounds = len(self.layout)
        self.meets = hosts > 2
        """Whether a result is met in two steps: added up by blocks, then spread."""
        self.lag = min(LAG if hosts > 1 else 1, self.rounds)
        self.half = (self.lag + 1) // 2 if self.meets else self.lag
        self.slots = window.slots(dtype)
        self._make_room(dtype, len(self.lanes.mine), hosts)
        tags = task.tag, RESULT_TAGS + (group.sequence & SEQUENCE_BITS)
        self.tags = tags[0], tags[0], tags[1], tags[1]
        self.under_way: deque[Pending] = deque()
        self.pending: dict[tuple[int, int, int], list[Pending]] = {}
        """What is on its way, by kind, round and lane."""

    def _make_room(self, dtype: np.dtype[Any], lanes: int, hosts: int) -> None:
        """Lay out, for each lane: sums to send, what lands, results; used in turn."""
        share = -(-self.length // hosts) if self.meets else self.length
        shapes = (
            (self.half + 1, lanes, self.length),
            (self.half + 2, lanes, hosts - 1, share),
            (self.lag + 1, lanes, self.length),
        )
        nbytes = [int(np.prod(shape)) * dtype.itemsize for shape in shapes]
        starts = np.cumsum([0, *(-(-size // 64) * 64 for size in nbytes)]).tolist()
        scratch = self.group.scratch(starts[-1] + 64)
        self.sums, self.landing, self.results = (
            np.ndarray(shape, dtype, scratch[start : start + size])
            for shape, start, size in zip(shapes, starts, nbytes, strict=False)
        )

    def run(self) -> None:
        """Go through all rounds; there is none where there is nothing to add."""
        stranded = self.group.stranded
        stranded.append((self, self.group.scratch(0)))
        with np.errstate(all="ignore"):
            self._run()
        stranded.pop()

    def _run(self) -> None:
        turn, rounds = self.window.turn, self.rounds
        for number in range(self.landing.shape[0]):
            self.expect(number)
        for number in range(rounds + self.lag if rounds else 0):
            slots = self.slots[(turn + number) & 1]
            self.give(number, slots[self.lanes.place])
            self.meet(number - self.half)
            self.deliver(number - self.lag, slots[self.lanes.place])
            self.group.hand_over(self.task.timeout_s, self.progress)
            self.add(number, slots)
            self.take(number - self.lag, slots)
        for key in list(self.pending):
            self.wait(*key)
        self.window.turn = turn + rounds + self.lag if rounds else turn

    def pieces(self, number: int) -> list[Piece]:
        """Return the pieces of all lanes that go in a round; none before or after."""
        if not 0 <= number < self.rounds:
            return []
        step = self.layout[number]
        return [*step.own, *step.others]

    def loads(self, number: int) -> list[tuple[int, int, int]]:
        """Return what this rank carries in a round: lane, its index, its elements."""
        if not 0 <= number < self.rounds:
            return []
        return [
            (lane, index, min(self.length, size))
            for index, lane in enumerate(self.lanes.mine)
            if (size := self._left(lane, number)) > 0
        ]

    def _left(self, lane: int, number: int) -> int:
        return self.blocks[lane + 1] - self.blocks[lane] - number * self.length

    def share(self, size: int, host: int) -> slice:
        """Return what of a lane's segment a host adds up: a block of it, or all."""
        if not self.meets:
            return slice(0, size)
        bounds = even_bounds(size, len(self.lanes.hosts))
        return slice(bounds[host], bounds[host + 1])

    def give(self, number: int, slot: Array) -> None:
        """Copy what the others carry into this rank's slot."""
        for lane, low, high, array, start, stop in self.pieces(number):
            if lane not in self.lanes.mine:
                slot[low:high] = self.sources[array][start:stop]

    def expect(self, number: int) -> None:
        """Start to receive the others' sums of this rank's share of a segment."""
        for lane, index, size in self.loads(number):
            own = self.share(size, self.lanes.host)
            room = self.landing[number % len(self.landing), index]
            for place, host in enumerate(self.lanes.far):
                data = room[place, : own.stop - own.start]
                self.receive(SUMS_HERE, number, lane, host, data)

    def add(self, number: int, slots: list[Array]) -> None:
        """Add up this rank's lanes on this host, and send them to the others."""
        task, lanes, length = self.task, self.lanes, self.length
        sums = self.sums[number % len(self.sums)]
        for lane in lanes.mine:
            self.wait(SUMS_SENT, number - len(self.sums), lane)
        for lane, low, high, array, start, stop in self.pieces(number):
            if lane in lanes.mine:
                parts = [slot[low:high] for slot in slots]
                parts[lanes.place] = self.sources[array][start:stop]
                first = lane * length
                target = sums[lanes.mine.index(lane), low - first : high - first]
                combine_in_order(task, parts, target, NOTHING, last=False)
        for lane, index, size in self.loads(number):
            self.wait(RESULTS_SENT, number - len(self.results), lane)
            result = self.results[number % len(self.results), index]
            for host in lanes.far:
                share = self.share(size, host)
                if self.meets:
                    self.receive(RESULTS_HERE, number, lane, host, result[share])
                self.send(SUMS_SENT, number, lane, host, sums[index, share])

    def meet(self, number: int) -> None:
        """Add up this host's share of a segment over all hosts, and spread it."""
        lanes = self.lanes
        for lane, index, size in self.loads(number):
            self.wait(SUMS_HERE, number, lane)
            own = self.share(size, lanes.host)
            room = self.landing[number % len(self.landing), index]
            parts = {
                host: room[place, : own.stop - own.start]
                for place, host in enumerate(lanes.far)
            }
            parts[lanes.host] = self.sums[number % len(self.sums), index, own]
            result = self.results[number % len(self.results), index, own]
            in_order = [parts[host] for host in sorted(parts)]
            combine_in_order(self.task, in_order, result, NOTHING)
            for host in lanes.far if self.meets else ():
                self.send(RESULTS_SENT, number, lane, host, result)
        if number >= 0:
            self.expect(number + len(self.landing))

    def deliver(self, number: int, slot: Array) -> None:
        """Put the results of this rank's lanes into its slot, and where they belong."""
        mine, length = self.lanes.mine, self.length
        results = self.results[number % len(self.results)]
        for lane, index, size in self.loads(number):
            self.wait(RESULTS_HERE, number, lane)
            slot[lane * length :][:size] = results[index, :size]
        for lane, low, high, array, start, stop in self.pieces(number):
            if lane in mine:
                result = results[mine.index(lane)]
                first = lane * length
                self.works[array][start:stop] = result[low - first : high - first]

    def take(self, number: int, slots: list[Array]) -> None:
        """Copy the results of the lanes that others carry."""
        lanes = self.lanes
        for lane, low, high, array, start, stop in self.pieces(number):
            if lane not in lanes.mine:
                slot = slots[lanes.place_of(lane)]
                self.works[array][start:stop] = slot[low:high]

    def send(self, kind: int, number: int, lane: int, host: int, data: Array) -> None:
        """Start sending to the carrier of a lane on another host."""
        self._start(self.group.messages.send, kind, number, lane, host, data)

    def receive(
        self, kind: int, number: int, lane: int, host: int, data: Array
    ) -> None:
        """Start receiving from the carrier of a lane on another host."""
        self._start(self.group.messages.receive, kind, number, lane, host, data)

    def _start(
        self,
        start: Callable[[int, Array, int], Pending],
        kind: int,
        number: int,
        lane: int,
        host: int,
        data: Array,
    ) -> None:
        peer, tag = self.lanes.carrier(host, lane), self.tags[kind]
        pending = [
            start(peer, as_bytes(data[low:high]), tag)
            for low, high in segments(0, data.size, self.piece)
        ]
        self.under_way += pending
        self.pending.setdefault((kind, number, lane), []).extend(pending)

    def wait(self, kind: int, number: int, lane: int) -> None:
        """Wait until the messages of a kind, if there are any, are done."""
        for one in self.pending.pop((kind, number, lane), ()):
            self.group.wait(one.done, self.task.timeout_s)

    def progress(self) -> None:
        """Let the transport work, and forget what is done."""
        while self.under_way and self.under_way[0].done():
            self.under_way.popleft()
