"""Run any schedule on any message transport, in segments, two of them in flight.

Schedules say who exchanges which blocks; everything else about moving them is written
here, once. While segment i is being combined, segment i + 1 is under way.

Until a rank has combined something into a block, its own part of it is read from
`source`; the sum goes to `work`. So an array never has to be copied before it is
reduced. Where arrays of narrow floats are moved as they are, the schedule must be one
that sends no partial sums: those are kept as float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from collectives.buffers import as_bytes
from collectives.group import DATA_TAGS, SEQUENCE_BITS, Group
from collectives.kernels import Array, Kernel
from collectives.narrow import narrow_into, widen
from collectives.partition import Bounds, segments
from collectives.schedules import Run, Schedule, Step
from collectives.transport import Pending

IN_FLIGHT = 2


@dataclass(slots=True)
class Task:
    """One call, ready to be moved: flat arrays of one dtype, a block for each rank."""

    group: Group
    bounds: Bounds
    """Where each rank's block begins and ends in `work`, in elements."""
    source: Array
    """This rank's contribution; the very same array as `work`, or apart from it."""
    work: Array
    """Where the result is computed."""
    kernel: Kernel | None = None
    """How to combine; None for calls that only move."""
    root: int = -1
    timeout_s: float = 600.0
    """Seconds without any progress before `TimedOut`."""
    segment_bytes: int = 1 << 19
    source_bounds: Bounds | None = None
    """The blocks of `source`, where they are others than those of `work`."""

    @property
    def tag(self) -> int:
        """Tag of this call's messages."""
        return DATA_TAGS + (self.group.sequence & SEQUENCE_BITS)


def run_schedule(task: Task, schedule: Schedule, needed: Iterable[int] = ()) -> None:
    """Carry out this rank's steps; `task.work` then holds what they received.

    Args:
        task: what is moved.
        schedule: this rank's steps.
        needed: blocks that the caller wants in `work`; those that no step has written,
            as on a rank that is alone or only sends, are copied from `source`.

    Raises:
        TimedOut, PeerLost: see `Group.wait`; `work` is then undefined.
    """
    mover = _Mover(task)
    # What a rank has told NumPy to raise or to warn of must not set it apart.
    with np.errstate(all="ignore"):
        for step in schedule:
            mover.exchange(step)
    for block in needed:
        mover.take(block)


class _Mover:
    """The steps of one task, and which blocks already live in `work`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        blocks = len(task.bounds) - 1
        kernel = task.kernel
        self._widens = kernel is not None and kernel.work_dtype != task.work.dtype
        self._in_work = [task.source is task.work and not self._widens] * blocks
        self._length = max(1, task.segment_bytes // task.work.itemsize)
        self._sums = np.empty(0, np.float32)
        self._wide = np.empty((2, self._length if self._widens else 0), np.float32)
        self._source_bytes = as_bytes(task.source)
        self._work_bytes = as_bytes(task.work)

    def exchange(self, step: Step) -> None:
        """Send one run and receive another, segment by segment."""
        task = self.task
        messages, wait, timeout_s = task.group.messages, task.group.wait, task.timeout_s
        itemsize, tag = task.work.itemsize, task.tag
        origin, outgoing = self._outgoing(step)
        incoming = self._cut(step.receive, task.bounds)
        landing = self._landing(step, incoming)
        sends: list[Pending] = []
        receives: list[Pending] = []

        def send(index: int) -> None:
            if index < len(outgoing):
                low, high = outgoing[index]
                data = origin[low * itemsize : high * itemsize]
                sends.append(messages.send(step.send_to, data, tag))

        def sent(index: int) -> None:
            if 0 <= index < len(sends):
                wait(sends[index].done, timeout_s)

        def receive(index: int) -> None:
            if index < len(incoming):
                data = as_bytes(landing[index])
                receives.append(messages.receive(step.receive_from, data, tag))

        # Kept from here on, unless the step ends well: the transport may still write.
        task.group.stranded.append((sends, receives, landing, task))
        ahead = 0 if step.forward else IN_FLIGHT  # what is passed on must be here first
        for index in range(IN_FLIGHT):
            receive(index)
        for index in range(ahead):
            send(index)
        last = max(len(outgoing), len(incoming))
        for index in range(last):
            # Before combining: where a block is exchanged, that overwrites the very
            # segment that is being sent.
            sent(index + ahead - IN_FLIGHT)
            if index < len(incoming):
                wait(receives[index].done, timeout_s)
                if step.reduce:
                    self._combine(step, incoming[index], landing[index])
            receive(index + IN_FLIGHT)
            send(index + ahead)
        for index in range(last - IN_FLIGHT, last):
            sent(index)
        task.group.stranded.pop()
        for block in self._blocks(step.receive):
            self._in_work[block] = True

    def _outgoing(self, step: Step) -> tuple[Array, list[tuple[int, int]]]:
        """Return the bytes that a step sends from, and its segments in elements."""
        task = self.task
        if step.forward:
            return self._work_bytes, self._cut(step.send, task.bounds)
        if task.source_bounds is not None:
            return self._source_bytes, self._cut(step.send, task.source_bounds)
        in_work = self._gathered(step.send)
        origin = self._work_bytes if in_work else self._source_bytes
        return origin, self._cut(step.send, task.bounds)

    def _cut(self, run: Run, bounds: Bounds) -> list[tuple[int, int]]:
        """Return the segments of a run of blocks, in elements."""
        (first, last), blocks = run, len(bounds) - 1
        pieces = segments(bounds[first], bounds[min(last, blocks)], self._length)
        if last > blocks:
            pieces += segments(0, bounds[last - blocks], self._length)
        return pieces

    def _blocks(self, run: Run) -> list[int]:
        """Return the blocks of a run, which may go on past the last one."""
        return [block % len(self._in_work) for block in range(*run)]

    def _gathered(self, run: Run) -> bool:
        """Make all blocks of a run live in one array; tell whether that is `work`."""
        blocks = self._blocks(run)
        inside = [self._in_work[block] for block in blocks]
        if any(inside) and not all(inside):
            for block in blocks:
                self.take(block)
        return any(inside)

    def take(self, block: int) -> None:
        """Copy a block from source to work, unless it is there."""
        if not self._in_work[block]:
            low, high = self.task.bounds[block], self.task.bounds[block + 1]
            self.task.work[low:high] = self.task.source[low:high]
            self._in_work[block] = True

    def _landing(self, step: Step, incoming: list[tuple[int, int]]) -> list[Array]:
        """Return where each segment is received: in place, or in scratch by turns."""
        work = self.task.work
        if not step.reduce:
            return [work[low:high] for low, high in incoming]
        self._gathered(step.receive)
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
        in_work = self._in_work[step.receive[0] % len(self._in_work)]
        own = (task.work if in_work else task.source)[low:high]
        target = task.work[low:high]
        if self._widens:
            own, received, target = self._widen(step, segment, own, received)
        if step.lower_first:
            task.kernel.combine(received, own, out=target)
        else:
            task.kernel.combine(own, received, out=target)
        if step.final:
            task.kernel.finish(target, task.group.divisor)
            if self._widens:
                narrow_into(target, task.work[low:high])

    def _widen(
        self, step: Step, segment: tuple[int, int], own: Array, received: Array
    ) -> tuple[Array, Array, Array]:
        """Return two narrow floats to be combined as float32, and where to.

        Partial sums stay here, as float32, until they are final.
        """
        bounds, block = self.task.bounds, step.receive[0]
        first, (mine, theirs) = not self._in_work[block], self._wide[:, : own.size]
        if not (first and step.final):
            if not self._sums.size:
                self._sums = np.empty(bounds[block + 1] - bounds[block], np.float32)
            low, high = (place - bounds[block] for place in segment)
            mine = self._sums[low:high]
        return widen(own, mine) if first else mine, widen(received, theirs), mine
