"""Run any schedule on any message transport, in segments, two of them in flight.

Schedules (schedules.py) say who exchanges which blocks; everything else about moving
them is written here, once. While segment i is being combined, segment i + 1 is under
way.

Until a rank has combined something into a block, its own part of it is read from
`source`; the sum goes to `work`. So an array never has to be copied before it is
reduced.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from collectives.buffers import as_bytes
from collectives.group import DATA_TAGS, SEQUENCE_BITS, Group
from collectives.kernels import Array, Kernel
from collectives.partition import Bounds, bounds_of, even_bounds, segments
from collectives.schedules import (
    NOTHING,
    Run,
    Schedule,
    Step,
    ring_all_gather,
    tree_broadcast,
)

IN_FLIGHT = 2


@dataclass(slots=True)
class Task:
    """One call, ready to be moved: flat arrays of one dtype, a block for each rank."""

    group: Group
    bounds: Bounds
    """Where each rank's block begins and ends, in elements."""
    source: Array
    """This rank's contribution; the very same array as `work`, or apart from it."""
    work: Array
    """Where the result is computed."""
    kernel: Kernel | None = None
    """How to combine; None for calls that only move."""
    root: int = -1
    timeout_s: float = 600.0
    """Seconds without any progress before `TimedOut`."""
    segment_bytes: int = 1 << 20
    own_block_only: bool = False
    """Whether `source` is just this rank's block (gather-type calls)."""

    @property
    def tag(self) -> int:
        """Tag of this call's messages."""
        return DATA_TAGS + (self.group.sequence & SEQUENCE_BITS)


def run_schedule(task: Task, schedule: Schedule) -> None:
    """Carry out this rank's steps; afterwards `task.work` holds the result.

    Raises:
        TimedOut, PeerLost: see `Group.wait`; `work` is then undefined.
    """
    mover = _Mover(task)
    for step in schedule:
        mover.exchange(step)
    mover.keep_untouched()


class _Mover:
    """The steps of one task, and which blocks already live in `work`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        blocks = len(task.bounds) - 1
        self._in_work = [task.source is task.work] * blocks
        self._length = max(1, task.segment_bytes // task.work.itemsize)
        self._source_bytes = as_bytes(task.source)
        self._work_bytes = as_bytes(task.work)
        if task.own_block_only:
            self._place_own_block()

    def _place_own_block(self) -> None:
        task, rank = self.task, self.task.group.rank
        if not self._in_work[rank]:
            task.work[task.bounds[rank] : task.bounds[rank + 1]] = task.source
        self._in_work = [True] * len(self._in_work)

    def exchange(self, step: Step) -> None:
        """Send one run and receive another, segment by segment."""
        messages, wait = self.task.group.messages, self.task.group.wait
        itemsize, tag = self.task.work.itemsize, self.task.tag
        outgoing, incoming = self._cut(step.send), self._cut(step.receive)
        origin = self._work_bytes if self._in_work[step.send[0]] else self._source_bytes
        landing = self._landing(step, incoming)

        def send(index: int) -> None:
            if index < len(outgoing):
                low, high = outgoing[index]
                data = origin[low * itemsize : high * itemsize]
                sends.append(messages.send(step.send_to, data, tag))

        def receive(index: int) -> None:
            if index < len(incoming):
                data = as_bytes(landing[index])
                receives.append(messages.receive(step.receive_from, data, tag))

        sends, receives = [], []  # type: ignore[var-annotated]
        for index in range(IN_FLIGHT):
            receive(index)
            send(index)
        for index in range(max(len(outgoing), len(incoming))):
            # The send comes first: where a block is exchanged, combining overwrites
            # the very segment that is being sent.
            if index < len(outgoing):
                wait(sends[index].done, self.task.timeout_s)
            if index < len(incoming):
                wait(receives[index].done, self.task.timeout_s)
                if step.reduce:
                    self._combine(step, incoming[index], landing[index])
            receive(index + IN_FLIGHT)
            send(index + IN_FLIGHT)
        for block in range(*step.receive):
            self._in_work[block] = True

    def _cut(self, run: Run) -> list[tuple[int, int]]:
        """Return the segments of a run of blocks, in elements."""
        if run == NOTHING:
            return []
        bounds = self.task.bounds
        return segments(bounds[run[0]], bounds[run[1]], self._length)

    def _landing(self, step: Step, incoming: list[tuple[int, int]]) -> list[Array]:
        """Return where each segment is received: in place, or in scratch by turns."""
        work = self.task.work
        if not step.reduce:
            return [work[low:high] for low, high in incoming]
        room = min(self._length, work.size)
        scratch = self.task.group.scratch(IN_FLIGHT * room * work.itemsize)
        slots = scratch.view(work.dtype).reshape(IN_FLIGHT, room)
        return [
            slots[index % IN_FLIGHT, : high - low]
            for index, (low, high) in enumerate(incoming)
        ]

    def _combine(self, step: Step, segment: tuple[int, int], received: Array) -> None:
        """Combine a received segment with this rank's own."""
        task, (low, high) = self.task, segment
        assert task.kernel is not None, "a schedule that reduces needs a kernel"
        origin = task.work if self._in_work[step.receive[0]] else task.source
        own, target = origin[low:high], task.work[low:high]
        if step.lower_first:
            task.kernel.combine(received, own, out=target)
        else:
            task.kernel.combine(own, received, out=target)
        if step.final:
            task.kernel.finish(target, task.group.size)

    def keep_untouched(self) -> None:
        """Copy what no step has written: everything, where a rank is alone or sends."""
        task = self.task
        if task.root not in (-1, task.group.rank):
            return
        for block, in_work in enumerate(self._in_work):
            if not in_work:
                low, high = task.bounds[block], task.bounds[block + 1]
                task.work[low:high] = task.source[low:high]


def all_gather_rows(group: Group, row: Array, timeout_s: float) -> Array:
    """Return the `(size, len(row))` array of every rank's row; all of one length."""
    return _gather(group, row, [row.size] * group.size, timeout_s).reshape(
        group.size, row.size
    )


def all_gather_bytes(group: Group, mine: bytes, timeout_s: float) -> list[bytes]:
    """Return what every rank gave, in rank order; lengths may differ.

    For the small, rare things that ranks tell each other, such as descriptors and
    pickled objects. Two trips around the ring.
    """
    length = np.array([len(mine)], np.int64)
    lengths: list[int] = all_gather_rows(group, length, timeout_s)[:, 0].tolist()
    source = np.frombuffer(mine, np.uint8)
    everything = _gather(group, source, lengths, timeout_s).tobytes()
    ends = bounds_of(lengths)
    return [everything[low:high] for low, high in pairwise(ends)]


def broadcast_bytes(group: Group, mine: bytes, root: int, timeout_s: float) -> bytes:
    """Return what the root gave; the others' `mine` is ignored."""
    schedule = tree_broadcast(group.rank, group.size, root)

    def spread(source: Array, work: Array) -> Array:
        bounds = even_bounds(work.size, group.size)
        run_schedule(
            Task(group, bounds, source, work, root=root, timeout_s=timeout_s), schedule
        )
        return work

    (length,) = spread(np.array([len(mine)], np.int64), np.empty(1, np.int64))
    source = np.frombuffer(mine, np.uint8)[: int(length)]
    return spread(source, np.empty(int(length), np.uint8)).tobytes()


def _gather(group: Group, source: Array, lengths: list[int], timeout_s: float) -> Array:
    bounds = bounds_of(lengths)
    work = np.empty(bounds[-1], source.dtype)
    task = Task(group, bounds, source, work, timeout_s=timeout_s, own_block_only=True)
    run_schedule(task, ring_all_gather(group.rank, group.size))
    return work
