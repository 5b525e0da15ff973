"""All-reduce of device arrays on several hosts: on the GPUs inside, by lanes between.

::

    GPUs of a host   each adds up its lanes of what the others have      (cuda_ipc.py)
    GPU -> host      the sums of its own lanes, into pinned memory
    network          the carriers of a lane add up the hosts' sums       (lanes.py)
    host -> GPU      the results, into the window, where the others read them

Of n bytes on h hosts of L ranks each GPU copies n/L to its host and back, and each host
sends 2 n (h-1)/h: by way of the host alone every rank would copy n. In segments as long
as a slot of the window, one after the other: copies do not overlap the network yet.
"""

from __future__ import annotations

from typing import Any

from collectives.algorithms import Algorithm
from collectives.algorithms.stepwise import Task, run_schedule
from collectives.gpu import slice_sum, streams
from collectives.kernels import Array, Kernel
from collectives.lanes import lanes_of
from collectives.partition import even_bounds
from collectives.schedules import circulant_all_reduce


def all_reduce(task: Task) -> None:
    """Leave the sum in everybody's `work`."""
    _Sum(task).run()


class _Sum:
    """One call: its lanes, and where their parts lie in the window."""

    def __init__(self, task: Task) -> None:
        group, dtype = task.group, task.work.dtype
        window = group.device_window
        assert window is not None and task.kernel is not None, "see device_window.py"
        self.task, self.group = task, group
        self.window, self.kernel = window, task.kernel
        self.lanes = lanes_of(group.topology)
        self.slots = window.slots(dtype)
        self.length = max(1, window.length(dtype.itemsize) // self.lanes.count)
        self.bounds = even_bounds(task.work.size, self.lanes.count)

    def run(self) -> None:
        """Go through the segments of the lanes; the first lane is the longest."""
        for number in range(-(-self.bounds[1] // self.length)):
            self.segment(number)
        streams.finish(self.group, self.task.timeout_s)

    def pieces(self, number: int) -> list[tuple[int, slice, slice]]:
        """Return lane, place in the array and place in a slot of what is moved."""
        found = []
        for lane in range(self.lanes.count):
            low = self.bounds[lane] + number * self.length
            high = min(low + self.length, self.bounds[lane + 1])
            first = lane * self.length
            if low < high:
                found.append((lane, slice(low, high), slice(first, first + high - low)))
        return found

    def segment(self, number: int) -> None:
        """Add up a segment of each lane, and copy it into the result."""
        lanes, source, work = self.lanes, self.task.source, self.task.work
        slots = self.slots[self.window.turn & 1]
        own = slots[lanes.place]
        mine: list[tuple[int, slice, Any, Array]] = []
        for lane, span, place in self.pieces(number):
            if lane not in lanes.mine:
                own[place] = source[span]
        self.hand_over()
        self.group.pinned.begin()
        for lane, span, place in self.pieces(number):
            if lane in lanes.mine:
                total: Any = own[place]
                parts = [slot[place] for slot in slots]
                parts[lanes.place] = source[span]
                slice_sum.slice_sum(self.kernel, work.dtype, parts, [total])
                host = self.group.pinned.empty(total.shape, work.dtype)
                total.get(out=host, blocking=False)
                mine.append((lane, span, total, host))
        streams.finish(self.group, self.task.timeout_s)
        for lane, _, _, host in mine:
            self.cross(lane, host)
        for _, span, total, host in mine:
            total.set(host)
            work[span] = total
        self.hand_over()
        for lane, span, place in self.pieces(number):
            if lane not in lanes.mine:
                work[span] = slots[lanes.place_of(lane)][place]
        self.window.turn += 1

    def cross(self, lane: int, host: Array) -> None:
        """Add up, with the carriers of a lane, what the hosts have of it."""
        lanes, task = self.lanes, self.task
        hosts = len(lanes.hosts)
        carriers = [*(lanes.carrier(host, lane) for host in range(hosts)), -1]
        steps = [
            step._replace(
                send_to=carriers[step.send_to], receive_from=carriers[step.receive_from]
            )
            for step in circulant_all_reduce(lanes.host, hosts)
        ]
        crossing = Task(
            self.group,
            even_bounds(host.size, hosts),
            host,
            host,
            self.kernel,
            timeout_s=task.timeout_s,
            segment_bytes=task.segment_bytes,
        )
        run_schedule(crossing, steps)

    def hand_over(self) -> None:
        """Wait until the ranks of this host have come here, with what they queued."""
        streams.finish(self.group, self.task.timeout_s)
        self.group.hand_over(self.task.timeout_s)


def refusal(collective: str, kernel: Kernel | None) -> str:
    """Return why a call cannot be made in this way; empty if it can."""
    return slice_sum.refusal(kernel) if kernel is not None else ""


ROWS = {
    "all_reduce": Algorithm(
        all_reduce, "the memory of GPUs inside hosts, all their ranks between hosts"
    )
}
