"""Plans: what follows from the signature of a call, made once for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectives import selection
from collectives.algorithms import TABLE
from collectives.algorithms.stepwise import Task
from collectives.buffers import flat_source, flat_work, same_memory
from collectives.descriptor import Descriptor
from collectives.group import Group
from collectives.kernels import Array, Kernel, ReduceOp, kernel_for
from collectives.options import Options
from collectives.partition import even_bounds

PLANS_KEPT = 4096


@dataclass(frozen=True)
class Plan:
    """How calls with one signature are described and run."""

    descriptor: Descriptor
    run: Callable[[Task], None]
    kernel: Kernel | None
    work_dtype: np.dtype[Any]
    result_dtype: np.dtype[Any]
    bounds: tuple[int, ...]


class Planner:
    """Makes the plans of one communicator and keeps the latest ones."""

    def __init__(self, group: Group, options: Options) -> None:
        """Plan calls on `group` under `options`."""
        self.group = group
        self.options = options
        self._plans: dict[Any, Plan] = {}

    def choose(
        self, collective: str, nbytes: int, kernel: Kernel | None, algorithm: str | None
    ) -> selection.Choice:
        """Return the algorithm for a call; see `selection.choose`."""
        requested = algorithm or self.options.algorithm
        return selection.choose(collective, nbytes, kernel, self.group, requested)

    def plan(
        self,
        collective: str,
        array: Array,
        op: str | ReduceOp | None,
        root: int,
        algorithm: str | None,
    ) -> Plan:
        """Return the plan for one array."""
        key = (collective, array.dtype, array.shape, op, root, algorithm)
        plan = self._plans.get(key)
        if plan is None:
            kernel = None if op is None else kernel_for(op, array.dtype)
            plan = self._make(
                collective, array.dtype, array.shape, kernel, root, algorithm
            )
            self._keep(key, plan)
        return plan

    def plan_pack(self, kernel: Kernel, elements: int, algorithm: str | None) -> Plan:
        """Return the plan for one pack of an `all_reduce_many`."""
        key = (kernel, elements, algorithm)
        plan = self._plans.get(key)
        if plan is None:
            shape = (elements,)
            plan = self._make(
                "all_reduce", kernel.work_dtype, shape, kernel, -1, algorithm
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
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        kernel: Kernel | None,
        root: int,
        algorithm: str | None,
    ) -> Plan:
        work_dtype = dtype if kernel is None else kernel.work_dtype
        elements = int(np.prod(shape, dtype=np.int64))
        nbytes = elements * work_dtype.itemsize
        choice = self.choose(collective, nbytes, kernel, algorithm)
        descriptor = Descriptor(
            collective,
            dtype=str(dtype),
            op="" if kernel is None else kernel.op,
            shape=shape,
            root=root,
            algorithm=choice.algorithm,
        )
        return Plan(
            descriptor=descriptor,
            run=TABLE[collective][choice.algorithm].run,
            kernel=kernel,
            work_dtype=work_dtype,
            result_dtype=dtype if kernel is None else kernel.result_dtype,
            bounds=even_bounds(elements, self.group.size),
        )

    def move(self, plan: Plan, array: Array, target: Array) -> None:
        """Run a plan from the caller's array into the caller's target."""
        work, direct = flat_work(target, plan.work_dtype)
        if array is target and direct:
            source = work
        else:
            source = flat_source(array, plan.work_dtype)
            if np.may_share_memory(source, work):
                source = work if same_memory(source, work) else source.copy()
        self.move_flat(plan, source, work)
        if not direct:
            target[...] = work.reshape(target.shape)

    def move_flat(self, plan: Plan, source: Array, work: Array) -> None:
        """Run a plan between flat arrays of its `work_dtype`; in place if the same."""
        options = self.options
        plan.run(
            Task(
                self.group,
                plan.bounds,
                source,
                work,
                plan.kernel,
                plan.descriptor.root,
                options.timeout_s,
                options.segment_bytes,
            )
        )
