"""All-to-all on two levels: what a host has for a rank elsewhere goes in one message.

::

    host A   0 ─┐                      0, 1 ──► 2      what 0 and 1 have for rank 2
             1 ─┴─ memory, 0 and 1 ──► 0, 1 ──► 3      is sent by its carrier, 0

With R ranks on each of h hosts a rank sends h - 1 messages, not R (h - 1), of R blocks
each: the same bytes. Blocks may be of any lengths, and ranks on hosts as they like.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from collectives.algorithms.hierarchical.blocks import Blocks
from collectives.algorithms.hierarchical.crossing import HERE, LAG, SENT, Crossing
from collectives.algorithms.stepwise import Task
from collectives.kernels import Array


def all_to_all(task: Task) -> None:
    """Send each rank its block of `source`; fill `work` with what all have sent."""
    outgoing = task.source_bounds
    assert outgoing is not None
    blocks = Blocks(task)
    crossing, lanes, rank = blocks.crossing, blocks.lanes, blocks.rank
    here, length = lanes.hosts[lanes.host], crossing.length
    far = [block for block in blocks.mine if block != rank]
    told = _of_this_host(crossing, (*outgoing, blocks.rounds))
    theirs = [bounds for *bounds, _ in told]
    lengths = [high - low for bounds in theirs for low, high in pairwise(bounds)]
    rounds = max(blocks.rounds_of(lengths), *(number for *_, number in told))
    lag = min(LAG, rounds)
    largest = max(map(len, lanes.hosts))
    packs, landing = crossing.rooms(
        (LAG, len(far), len(here) * length),
        (lag + 1, len(lanes.far), largest * length),
    )

    def write(number: int, slot: Array) -> None:
        for block, carrier in enumerate(blocks.carriers):
            if carrier != lanes.place:
                span = blocks.span(block, number, outgoing)
                slot[blocks.place(block, span)] = task.source[span]

    def read(number: int, slots: list[Array]) -> None:
        """Take what this host's other ranks have for this one."""
        for block, slot in zip(here, slots, strict=True):
            if block != rank:
                span = blocks.span(block, number)
                task.work[span] = slot[blocks.place(rank, span)]

    def send(number: int, slots: list[Array]) -> None:
        """Send what this host has for the ranks elsewhere that this one serves."""
        for index, block in enumerate(far):
            crossing.wait(SENT, number - LAG, block)
            pack, end = packs[number % LAG, index], 0
            for place, bounds in enumerate(theirs):
                span = blocks.span(block, number, bounds)
                part = slots[place][blocks.place(block, span)]
                start, end = end, end + span.stop - span.start
                pack[start:end] = task.source[span] if place == lanes.place else part
            crossing.send(SENT, number, block, block, pack[:end])

    def expect(number: int) -> None:
        for index, (host, peer) in enumerate(blocks.peers):
            spans = [blocks.span(block, number) for block in lanes.hosts[host]]
            size = sum(span.stop - span.start for span in spans)
            data = landing[number % len(landing), index, :size]
            crossing.receive(HERE, number, host, peer, data)

    def take(number: int) -> None:
        """Put what has come from other hosts in its places."""
        for index, (host, _) in enumerate(blocks.peers):
            crossing.wait(HERE, number, host)
            data, end = landing[number % len(landing), index], 0
            for block in lanes.hosts[host]:
                span = blocks.span(block, number)
                start, end = end, end + span.stop - span.start
                task.work[span] = data[start:end]
        if number >= 0:
            expect(number + len(landing))

    def step(number: int, slots: list[Array]) -> None:
        write(number, slots[lanes.place])
        take(number - lag)
        crossing.hand_over()
        read(number, slots)
        send(number, slots)

    for number in range(len(landing)):
        expect(number)
    crossing.run(rounds + lag, step)


def _of_this_host(crossing: Crossing, mine: Sequence[int]) -> list[list[int]]:
    """Return what each rank of this host has here, as many numbers as this one."""
    row, place = np.array(mine, np.int64), crossing.lanes.place
    rows = np.empty(
        (len(crossing.lanes.hosts[crossing.lanes.host]), row.size), np.int64
    )
    room = crossing.room_of(row.dtype)

    def step(number: int, slots: list[Array]) -> None:
        part = slice(number * room, (number + 1) * room)
        slots[place].view(np.int64)[: row[part].size] = row[part]
        crossing.hand_over()
        for told, slot in zip(rows, slots, strict=True):
            told[part] = slot.view(np.int64)[: row[part].size]

    crossing.run(-(-row.size // room), step)
    numbers: list[list[int]] = rows.tolist()
    return numbers
