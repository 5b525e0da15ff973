"""Plans, and carrying them out: from the caller's arrays into the caller's targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectives import selection
from collectives.algorithms import Flow, Start
from collectives.algorithms.small import all_gather_errors
from collectives.algorithms.stepwise import Task
from collectives.buffers import flat_work, source_beside
from collectives.descriptor import Descriptor
from collectives.errors import UnsupportedError
from collectives.group import Group
from collectives.kernels import Array, Calling, Kernel
from collectives.narrow import narrow_into
from collectives.options import Options
from collectives.partition import Bounds
from collectives.spreading import Ride


@dataclass(frozen=True)
class Plan:
    """How calls with one signature are described and run."""

    descriptor: Descriptor
    choice: selection.Choice
    run: Callable[[Task], None]
    kernel: Kernel | None
    work_dtype: np.dtype[Any]
    result_dtype: np.dtype[Any]
    bounds: Bounds
    ride: Ride | None = None
    """Where the data travel with the agreement: small, and across hosts."""
    rides_quickly: bool = False
    """Whether plain arrays that ride may go the short way."""
    flow: Flow | None = None
    """Lets several arrays go one behind the other, without a buffer."""
    task: Task | None = None
    """Where plain arrays may go the short way (express.py): to be filled in."""
    word: int = 0
    """The descriptor's, for sequence number 0."""
    mail: tuple[list[Array], list[Array]] | None = None
    """Where small arrays are put before the ranks agree, by turn and rank."""
    start: Start | None = None
    """Does what can be done before the ranks agree, instead of `run`, and returns the
    rest; None where all of it has to wait for that."""


class Mover:
    """Carries out plans on one group under one communicator's options."""

    group: Group
    options: Options

    def move(self, plan: Plan, array: Array, target: Array) -> None:
        """Run a plan from the caller's array into the caller's target."""
        source, work, direct = _flat(plan, array, target)
        self.move_flat(plan, source, work)
        if not direct:
            narrow_into(work, target)

    def move_flat(self, plan: Plan, source: Array, work: Array) -> None:
        """Run a plan between flat arrays of its `work_dtype`; in place if the same."""
        root = plan.descriptor.root
        plan.run(self.task(plan.bounds, source, work, plan.kernel, root))
        self.check(plan)

    def start(self, plan: Plan, array: Array, target: Array) -> Callable[[], None]:
        """Do before the ranks agree what can be done of `move`; return the rest."""
        assert plan.start is not None, "this plan begins when the ranks have agreed"
        source, work, direct = _flat(plan, array, target)
        rest = plan.start(self.task(plan.bounds, source, work, plan.kernel))

        def end() -> None:
            rest()
            self.check(plan)
            if not direct:
                narrow_into(work, target)

        return end

    def check(self, plan: Plan) -> None:
        """Raise the same error on all ranks if a function given as op failed on one."""
        function = plan.kernel.combine if plan.kernel is not None else None
        if not isinstance(function, Calling):
            return
        error, function.error = function.error, ""
        errors = all_gather_errors(self.group, error, self.options.timeout_s)
        if errors:
            raise UnsupportedError(f"the function given as op failed: {errors}")

    def task(
        self,
        bounds: Bounds,
        source: Array,
        work: Array,
        kernel: Kernel | None = None,
        root: int = -1,
        source_bounds: Bounds | None = None,
    ) -> Task:
        """Return a task under this communicator's options."""
        options = self.options
        return Task(
            self.group,
            bounds,
            source,
            work,
            kernel,
            root,
            options.timeout_s,
            options.segment_bytes,
            source_bounds,
        )


def _flat(plan: Plan, array: Array, target: Array) -> tuple[Array, Array, bool]:
    """Return source and work of a call, and whether the work lies in the target."""
    work, direct = flat_work(target, plan.work_dtype)
    source = source_beside(array, target, work, direct)
    if not direct and array.dtype != plan.work_dtype:
        work = source  # it is ours: no need for two such arrays
    return source, work, direct
