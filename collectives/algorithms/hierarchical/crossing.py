"""What all that goes on two levels has in common: rounds, and messages on their way.

The rounds are those of a window (rounds.py), one window a host; they cut an array alike
on all hosts. What crosses the network is started in one round and waited for some
rounds later; while ranks of a host wait for each other they let the transport work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from collectives.algorithms.ordered import combine_in_order
from collectives.algorithms.stepwise import Task
from collectives.buffers import as_bytes
from collectives.group import RESULT_TAGS, SEQUENCE_BITS
from collectives.kernels import Array
from collectives.lanes import lanes_of
from collectives.partition import segments
from collectives.transport import Pending
from collectives.window import slot_bytes

LAG = 6  # rounds: so many segments are on their way at once
# Longer messages are asked for before they are sent, which takes Open MPI's TCP a third
# of its rate: 2 hosts x 2 ranks at 1 Gbit/s.
PIECE_BYTES = {"Open MPI": 60 << 10}
ALIGNMENT = 64
NO_ROOM = np.empty(0, np.float32)
# Kinds of messages. Those of one kind between two ranks are started in the same order.
SENT, HERE, RESULT_SENT, RESULT_HERE = range(4)


class Crossing:
    """One call: its lanes, its window, and what is on its way."""

    def __init__(self, task: Task, places: int, most_lanes: int = 0) -> None:
        """Cut a slot into so many places; use at most so many lanes if not 0."""
        group, window, dtype = task.group, task.group.window, task.work.dtype
        assert window is not None, "see opening.py"
        self.task, self.group, self.window = task, group, window
        self.lanes = lanes_of(group.topology, most_lanes)
        largest = max(map(len, self.lanes.hosts))
        room = min(slot_bytes(largest), task.segment_bytes) // dtype.itemsize
        self.length = max(1, room // places)
        """Elements of a place: what a round moves of each lane, or block."""
        mpi = group.topology.mpi
        longest = PIECE_BYTES.get("" if mpi is None else mpi.vendor, 1 << 62)
        self._piece = max(1, longest // dtype.itemsize)
        self._slots = window.slots(dtype)
        tags = task.tag, RESULT_TAGS + (group.sequence & SEQUENCE_BITS)
        self._tags = tags[0], tags[0], tags[1], tags[1]
        self._under_way: deque[Pending] = deque()
        self._pending: dict[tuple[int, int, int], list[Pending]] = {}

    def room_of(self, dtype: np.dtype[Any]) -> int:
        """Return how many elements of another dtype a slot can hold."""
        return self._slots[0][0].nbytes // dtype.itemsize

    def rooms(self, *shapes: tuple[int, ...]) -> list[Array]:
        """Return arrays of these shapes that last until the end of the call."""
        dtype = self.task.work.dtype
        sizes = [
            -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
            for shape in shapes
        ]
        scratch, start, rooms = self.group.scratch(sum(sizes)), 0, []
        for shape, size in zip(shapes, sizes, strict=True):
            memory = scratch[start : start + prod(shape) * dtype.itemsize]
            rooms.append(memory.view(dtype).reshape(shape))
            start += size
        return rooms

    def run(self, rounds: int, step: Callable[[int, list[Array]], None]) -> None:
        """Take `step(number, slots)` for each round; then wait for what is under way.

        There must be a hand-over in each of the steps.
        """
        stranded, turn = self.group.stranded, self.window.turn
        stranded.append((self, step))
        with np.errstate(all="ignore"):
            for number in range(rounds):
                step(number, self._slots[(turn + number) & 1])
        for key in list(self._pending):
            self.wait(*key)
        self.window.turn = turn + rounds
        stranded.pop()

    def hand_over(self) -> None:
        """Wait until all ranks of this host have come to this point."""
        self.group.hand_over(self.task.timeout_s, self._progress)

    def _progress(self) -> None:
        """Let the transport work, and forget what is done."""
        while self._under_way and self._under_way[0].done():
            self._under_way.popleft()

    def send(self, kind: int, number: int, block: int, peer: int, data: Array) -> None:
        """Start sending to a rank on another host."""
        self._start(self.group.messages.send, (kind, number, block), peer, data)

    def receive(
        self, kind: int, number: int, block: int, peer: int, data: Array
    ) -> None:
        """Start receiving from a rank on another host."""
        self._start(self.group.messages.receive, (kind, number, block), peer, data)

    def _start(
        self,
        start: Callable[[int, Array, int], Pending],
        key: tuple[int, int, int],
        peer: int,
        data: Array,
    ) -> None:
        tag = self._tags[key[0]]
        pending = [
            start(peer, as_bytes(data[low:high]), tag)
            for low, high in segments(0, data.size, self._piece)
        ]
        self._under_way += pending
        self._pending.setdefault(key, []).extend(pending)

    def wait(self, kind: int, number: int, block: int) -> None:
        """Wait until the messages of a kind, round and block, if any, are done."""
        for one in self._pending.pop((kind, number, block), ()):
            self.group.wait(one.done, self.task.timeout_s)

    def combine(self, parts: Sequence[Array], target: Array, last: bool) -> None:
        """Put the sum of the parts, from left to right, into `target`."""
        if target.size:
            combine_in_order(self.task, parts, target, NO_ROOM, last)
