"""Through the memory of GPUs that the processes of a host open to each other.

The rounds of shared.py and shared_sums.py, in a window that lies on the ranks' devices:
what is put into a slot is a copy on the device, what is read from it is read by kernels
of the peers, over NVLink or within one GPU. Each rank adds up its slice of what all
have by one kernel (gpu/slice_sum.py), in the order of ranks. What a rank has itself
never goes through the window.

Kernels are queued, and events are not shared between processes: before a hand-over each
rank waits for its own stream, so that what it has queued before is done when the others
go on, and what the others queue after comes later. An all-reduce of n bytes on p ranks
writes (p-1)/p n into the own part and n into the result, and reads twice as much.

Up to `WHOLE_BYTES` a hand-over costs more than bytes do: then everybody adds up all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collectives.algorithms import Algorithm, shared, shared_sums
from collectives.algorithms.rounds import MakeRounds, Rounds
from collectives.algorithms.small import all_gather_bytes
from collectives.algorithms.stepwise import Task
from collectives.board import NEWS
from collectives.gpu import slice_sum, streams
from collectives.kernels import Array, Kernel
from collectives.transport import exported

WHOLE_BYTES = 512 << 10  # as others do it with up to 4 GPUs; not measured here yet

Run = Callable[[Task, MakeRounds], None]


class DeviceRounds(Rounds):
    """Rounds whose slots lie on devices."""

    def __init__(self, task: Task, divided: bool) -> None:
        """See `Rounds`; the host's segments are too short for a device."""
        window = task.group.device_window
        assert window is not None, "see device_window.py"
        self.shared = window.shared
        super().__init__(
            replace(task, segment_bytes=window.slot_bytes), divided, window
        )

    def hand_over(self) -> None:
        """Wait until all have come to this point, with all that they have queued."""
        self.board.write(NEWS, self.shared.news)
        streams.finish(self.task.group, self.task.timeout_s)
        super().hand_over()

    def combine(
        self,
        parts: list[Array],
        target: Array,
        last: bool = True,
        copies: Sequence[Array] = (),
    ) -> None:
        """Put the sum, in rank order, into all of these, by one kernel."""
        kernel, group = self.task.kernel, self.task.group
        if kernel is None or not target.size:
            return
        to_all = len(copies) == self.size
        targets = copies if to_all else [target, *copies]
        dtype = dtype_of(kernel, target)
        slice_sum.slice_sum(kernel, dtype, parts, targets, group.divisor if last else 1)

    def place_of(self, array: Array) -> int:
        """Return where the others find a flat array; -1 if they do not."""
        return self.shared.place_of(array)

    def found(self, places: list[int], like: Array) -> list[Array | None]:
        """Return arrays such as this one at those places, by rank."""
        return [
            None if place < 0 else self.shared.array(rank, place, like)
            for rank, place in enumerate(places)
        ]

    def end(self, count: int) -> None:
        """End the call; where some rank has news of its arrays, let all know."""
        super().end(count)
        if any(self.board.read(NEWS)):
            group, timeout_s = self.task.group, self.task.timeout_s
            streams.finish(group, timeout_s)
            self.shared.exchange(lambda news: all_gather_bytes(group, news, timeout_s))


def dtype_of(kernel: Kernel, array: Array) -> np.dtype[Any]:
    """Return what the elements are, even if the array holds bits of narrow floats."""
    result = kernel.result_dtype
    narrow = kernel.kind == "e" and result.itemsize == array.dtype.itemsize
    return result if narrow else array.dtype


def refusal(collective: str, kernel: Kernel | None) -> str:
    """Return why a call cannot be made in this way; empty if it can."""
    return slice_sum.refusal(kernel) if kernel is not None else ""


def _finished(run: Run) -> Callable[[Task], None]:
    """Return what comes back when its result is complete."""

    def finished(task: Task) -> None:
        exported.free_untold()
        run(task, DeviceRounds)
        streams.finish(task.group, task.timeout_s)

    return finished


def _by_size(small: Run, large: Run) -> Run:
    def run(task: Task, make: MakeRounds) -> None:
        # GPUs of two kinds may round products of complex numbers differently.
        alike = task.kernel is None or task.kernel.kind != "c"
        (small if alike and task.source.nbytes <= WHOLE_BYTES else large)(task, make)

    return run


RUNS: dict[str, Run] = {
    "all_reduce": _by_size(shared.sum_whole, shared_sums.all_reduce),
    "reduce": _by_size(shared.sum_whole, shared_sums.reduce),
    "reduce_scatter": shared.reduce_scatter,
    "scan": shared.scan,
    "exclusive_scan": shared.exclusive_scan,
    "broadcast": shared.broadcast,
    "all_gather": shared.all_gather,
    "gather": shared.gather,
    "scatter": shared.scatter,
    "all_to_all": shared.all_to_all,
}
ROWS = {
    collective: Algorithm(
        _finished(run),
        "through the memory of a host's GPUs, in rank order",
        in_order=True,
        sums_stay=True,
    )
    for collective, run in RUNS.items()
}
