"""Plans: what follows from the signature of a call, made once for each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from collectives import selection
from collectives.algorithms import REDUCING, TABLE, Algorithm
from collectives.algorithms.small import all_gather_errors
from collectives.algorithms.stepwise import Task
from collectives.buffers import flat_source, flat_work, same_memory
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.group import Group
from collectives.kernels import Array, Calling, Kernel, Op, kernel_for
from collectives.narrow import narrow_into
from collectives.options import Options
from collectives.partition import Bounds, even_bounds

PLANS_KEPT = 4096
RIDES = "recursive_doubling"  # the pattern of the agreement across hosts
RIDE_BYTES = 1 << 16


@dataclass(frozen=True)
class Plan:
    """How calls with one signature are described and run."""

    descriptor: Descriptor
    run: Callable[[Task], None]
    kernel: Kernel | None
    work_dtype: np.dtype[Any]
    result_dtype: np.dtype[Any]
    bounds: Bounds
    rides: bool = False
    """Whether the data travel with the agreement: small, and across hosts."""


class Planner:
    """Makes the plans of one communicator and keeps the latest ones."""

    def __init__(self, group: Group, options: Options) -> None:
        """Plan calls on `group` under `options`."""
        selection.check_option(options)
        self.group = group
        self.options = options
        self._plans: dict[Any, Plan] = {}

    def choose(
        self, collective: str, nbytes: int, kernel: Kernel | None, algorithm: str | None
    ) -> selection.Choice:
        """Return the algorithm for a call; see `selection.choose`."""
        return selection.choose(
            collective, nbytes, kernel, self.group, self.options, algorithm
        )

    def algorithm(self, collective: str, nbytes: int, name: str) -> Algorithm:
        """Return the algorithm of a gather-type call, once all lengths are known."""
        return TABLE[collective][self.choose(collective, nbytes, None, name).algorithm]

    def plan(
        self,
        collective: str,
        array: Array,
        op: Op | None,
        root: int,
        algorithm: str | None,
    ) -> Plan:
        """Return the plan for one array."""
        key = (collective, array.dtype, array.shape, op, root, algorithm)
        plan = self._plans.get(key)
        if plan is None:
            kernel = None
            if collective in REDUCING:
                kernel = kernel_for(cast(Op, op), array.dtype)
            bounds = even_bounds(array.size, self.group.size)
            plan = self._make(collective, array, kernel, root, algorithm, bounds)
            self._keep(key, plan)
        return plan

    def plan_pack(self, kernel: Kernel, pack: Array, algorithm: str | None) -> Plan:
        """Return the plan for one pack of an `all_reduce_many`, in its work dtype."""
        key = (kernel, pack.size, algorithm)
        plan = self._plans.get(key)
        if plan is None:
            bounds = even_bounds(pack.size, self.group.size)
            plan = self._make("all_reduce", pack, kernel, -1, algorithm, bounds)
            self._keep(key, plan)
        return plan

    def plan_scatter(
        self, array: Array, op: Op, axis: int, bounds: Bounds, algorithm: str | None
    ) -> Plan:
        """Return the plan of a reduce-scatter along `axis` into blocks of rows."""
        key = (array.dtype, array.shape, op, axis, bounds, algorithm)
        plan = self._plans.get(key)
        if plan is None:
            kernel = kernel_for(op, array.dtype)
            plan = self._make(
                "reduce_scatter", array, kernel, -1, algorithm, bounds, axis
            )
            self._keep(key, plan)
        return plan

    def _keep(self, key: Any, plan: Plan) -> None:
        if len(self._plans) >= PLANS_KEPT:
            self._plans.clear()
        self._plans[key] = plan

    def _make(
        self,
        collective: str,
        array: Array,
        kernel: Kernel | None,
        root: int,
        algorithm: str | None,
        bounds: Bounds,
        axis: int = -1,
    ) -> Plan:
        work_dtype = array.dtype if kernel is None else kernel.work_dtype
        choice = self.choose(
            collective, array.size * work_dtype.itemsize, kernel, algorithm
        )
        row = TABLE[collective][choice.algorithm]
        if kernel is not None and kernel.kind == "e" and row.sums_stay:
            work_dtype = array.dtype
        descriptor = Descriptor(
            collective,
            dtype=str(array.dtype),
            op="" if kernel is None else kernel.op,
            shape=array.shape,
            root=root,
            axis=axis,
            splits=bounds if axis >= 0 else (),
            algorithm=choice.algorithm,
        )
        return Plan(
            descriptor=descriptor,
            run=row.run,
            kernel=kernel,
            work_dtype=work_dtype,
            result_dtype=array.dtype if kernel is None else kernel.result_dtype,
            bounds=bounds,
            rides=choice.algorithm == RIDES
            and collective == "all_reduce"
            and not self.group.one_board
            and self.group.size > 1
            and array.size * work_dtype.itemsize <= RIDE_BYTES,
        )

    def move(self, plan: Plan, array: Array, target: Array) -> None:
        """Run a plan from the caller's array into the caller's target."""
        work, direct = flat_work(target, plan.work_dtype)
        if array is target and direct:
            source = work
        else:
            source = flat_source(array, plan.work_dtype)
            if not direct and array.dtype != plan.work_dtype:
                work = source  # it is ours: no need for two such arrays
            elif np.may_share_memory(source, work):
                source = work if same_memory(source, work) else source.copy()
        self.move_flat(plan, source, work)
        if not direct:
            narrow_into(work, target)

    def move_flat(self, plan: Plan, source: Array, work: Array) -> None:
        """Run a plan between flat arrays of its `work_dtype`; in place if the same."""
        root = plan.descriptor.root
        plan.run(self.task(plan.bounds, source, work, plan.kernel, root))
        if plan.kernel is not None and isinstance(plan.kernel.combine, Calling):
            self._check_function(plan.kernel.combine)

    def _check_function(self, function: Calling) -> None:
        """Raise the same error on all ranks if a caller's function failed on one."""
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

    def rank(self, given: Any, name: str = "root") -> int:
        """Return a rank that the caller has named, of any integer type.

        Raises:
            InvalidArgumentError: there is no such rank.
        """
        size = self.group.size
        try:
            rank = operator.index(given)
        except TypeError:
            rank = -1
        if not 0 <= rank < size:
            raise InvalidArgumentError(
                f"{name} is {given!r}; wanted a rank from 0 to {size - 1}"
            )
        return rank
