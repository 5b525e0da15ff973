"""Plans: what follows from the signature of a call, made once for each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from collectives import selection
from collectives.algorithms import (
    AUTO,
    REDUCING,
    SHARED,
    TABLE,
    Algorithm,
)
from collectives.algorithms.stepwise import Task
from collectives.buffers import as_array, check_out
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.group import Group
from collectives.kernels import Array, Kernel, Op, kernel_for
from collectives.moves import RIDE_BYTES
from collectives.moving import Mover, Plan
from collectives.options import Options
from collectives.partition import Bounds, even_bounds
from collectives.running import runner, starter
from collectives.spreading import spreading_of

R = TypeVar("R")

PLANS_KEPT = 4096
RIDES = "recursive_doubling"  # the pattern of the agreement across hosts


class Planner(Mover):
    """Makes the plans of one communicator and keeps the latest ones.

    And the arrays that its calls work in: here on the host, see device_plans.py.
    """

    on_device = False

    def __init__(self, group: Group, options: Options) -> None:
        """Plan calls on `group` under `options`."""
        selection.check_option(options)
        self.group = group
        self.options = options
        self.plans: dict[Any, Any] = group.plans.setdefault(options, {})

    def array(self, value: Any) -> Array:
        """Return what a caller gives as an array that can be moved; see `as_array`."""
        return as_array(value)

    def empty(self, shape: Any, dtype: Any) -> Array:
        """Return a new array, where those of the caller are."""
        return np.empty(shape, dtype)

    def check_out(self, out: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return a caller's target, after making sure that the result fits into it."""
        return check_out(out, shape, dtype)

    def target(self, out: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the array that a result goes to: new, or the caller's `out`."""
        if out is None:
            return self.empty(shape, dtype)
        return self.check_out(out, shape, dtype)

    def row(self, collective: str, name: str) -> Algorithm:
        """Return what is known of an algorithm."""
        return TABLE[collective][name]

    def asked(self, collective: str, algorithm: str | None) -> str:
        """Return the name or ranges that are asked for; see `selection.asked`."""
        return selection.asked(collective, self.options, algorithm)

    def runner(
        self, collective: str, choice: selection.Choice, nbytes: int
    ) -> Callable[[Task], None]:
        """Return what carries out a task by what was chosen; see `running.runner`."""
        return runner(self.group, collective, choice, nbytes)

    def choose(
        self, collective: str, nbytes: int, kernel: Kernel | None, algorithm: str | None
    ) -> selection.Choice:
        """Return the algorithm for a call; see `selection.choose`."""
        return selection.choose(
            collective, nbytes, kernel, self.group, self.options, algorithm
        )

    def explain(
        self, collective: str, nbytes: int, kernel: Kernel | None
    ) -> selection.Choice:
        """Return the algorithm for a call, with what it and others would take."""
        choice = self.choose(collective, nbytes, kernel, None)
        return selection.explained(
            choice, collective, nbytes, kernel, self.group, self.options
        )

    def windowed(self, plan: Plan) -> bool:
        """Tell whether a plan wants the window, and the group has not made it yet."""
        return self.wants_window(plan.descriptor.collective, plan.choice)

    def wants_window(self, collective: str, choice: selection.Choice) -> bool:
        """Tell whether a choice wants the window, and the group has not made it yet."""
        group, row = self.group, self.row(collective, choice.algorithm)
        if group.window is not None or group.size == 1:
            return False
        if self._rides(collective, choice):
            return group.topology.most_per_host > 1 and not group.no_window
        return row.needs_window or row.host_windows

    def _rides(self, collective: str, choice: selection.Choice) -> bool:
        """Tell whether a small call travels with the agreement across hosts."""
        return (
            not self.on_device
            and collective == "all_reduce"
            and choice.algorithm == RIDES
            and not self.group.one_board
            and self.group.size > 1
        )

    def choice(self, collective: str, nbytes: int, name: str) -> selection.Choice:
        """Return what was chosen for a call that moves, which all have agreed on."""
        key = ("choice", collective, nbytes, name)
        return self.known(key, lambda: self.choose(collective, nbytes, None, name))

    def plan(
        self,
        collective: str,
        array: Array,
        op: Op | None,
        root: int,
        algorithm: str | None,
    ) -> Plan:
        """Return the plan for one array."""

        def make() -> Plan:
            kernel = None
            if collective in REDUCING:
                kernel = kernel_for(cast(Op, op), array.dtype)
            bounds = even_bounds(array.size, self.group.size)
            return self._make(collective, array, kernel, root, algorithm, bounds)

        key = (collective, array.dtype, array.shape, op, root, algorithm)
        return self.known(key, make)

    def plan_common(self, array: Array, op: Op) -> Plan:
        """Return the plan of an all-reduce whose result is common to the ranks."""

        def make() -> Plan:
            plan = self.plan("all_reduce", array, op, -1, SHARED)
            return replace(
                plan,
                descriptor=replace(plan.descriptor, result="SHARED"),
                work_dtype=plan.result_dtype,  # as it is where nothing goes by mail
                mail=None,
                start=None,
                task=None,
            )

        return self.known(("common", array.dtype, array.shape, op), make)

    def plan_pack(self, kernel: Kernel, pack: Array, algorithm: str | None) -> Plan:
        """Return the plan for one pack of an `all_reduce_many`, in its work dtype."""

        def make() -> Plan:
            bounds = even_bounds(pack.size, self.group.size)
            return self._make("all_reduce", pack, kernel, -1, algorithm, bounds)

        return self.known((kernel, pack.dtype, pack.size, algorithm), make)

    def plan_scatter(
        self, array: Array, op: Op, axis: int, bounds: Bounds, algorithm: str | None
    ) -> Plan:
        """Return the plan of a reduce-scatter along `axis` into blocks of rows."""

        def make() -> Plan:
            kernel = kernel_for(op, array.dtype)
            name = "reduce_scatter"
            return self._make(name, array, kernel, -1, algorithm, bounds, axis)

        key = (array.dtype, array.shape, op, axis, bounds, algorithm)
        return self.known(key, make)

    def known(self, key: Any, make: Callable[[], R]) -> R:
        """Return what has been made for a key before, or make it now.

        What cannot be a key, such as a list given as op, is refused there.
        """
        try:
            kept = self.plans.get(key)
        except TypeError:
            return make()
        if kept is None:
            kept = make()
            if len(self.plans) >= PLANS_KEPT:
                self.plans.clear()
            self.plans[key] = kept
        return cast(R, kept)

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
        result_dtype = array.dtype if kernel is None else kernel.result_dtype
        nbytes, group = array.size * work_dtype.itemsize, self.group
        choice = self.choose(collective, nbytes, kernel, algorithm)
        row = self.row(collective, choice.algorithm)
        mail = None
        if (
            not self.on_device
            and collective == "all_reduce"
            and choice.algorithm == SHARED
            and not choice.rivals
            and not cast(Kernel, kernel).in_order
            and group.size > 1
            and group.window is not None
            and nbytes <= group.window.mail_bytes
        ):
            first, second = (
                group.window.mail(turn, work_dtype, array.shape) for turn in (0, 1)
            )
            mail = first, second
        elif kernel is not None and kernel.kind == "e" and row.sums_stay:
            work_dtype = array.dtype
        descriptor = Descriptor(
            collective,
            dtype=str(array.dtype),
            op="" if kernel is None else kernel.op,
            shape=array.shape,
            root=root,
            axis=axis,
            splits=bounds if axis >= 0 else (),
            algorithm=AUTO if choice.rivals else choice.algorithm,
        )
        ordinary = (
            not self.on_device
            and collective == "all_reduce"
            and group.size > 1
            and not self.wants_window(collective, choice)
            and array.dtype == work_dtype == result_dtype
            and not cast(Kernel, kernel).in_order
            and self.options.check != "full"
        )
        plain = ordinary and group.one_board
        ride = None
        if self._rides(collective, choice) and nbytes <= RIDE_BYTES:
            spreading = spreading_of(group)
            ride = spreading.ride(cast(Kernel, kernel), work_dtype, array.shape)
        nothing = np.empty(0, work_dtype)
        how = group, collective, choice, nbytes
        return Plan(
            descriptor=descriptor,
            choice=choice,
            run=self.runner(collective, choice, nbytes),
            start=None if mail or self.on_device else starter(*how),
            kernel=kernel,
            work_dtype=work_dtype,
            result_dtype=result_dtype,
            bounds=bounds,
            ride=ride,
            rides_quickly=ordinary,
            flow=row.flow if group.size > 1 else None,
            task=self.task(bounds, nothing, nothing, kernel) if plain else None,
            word=descriptor.word(0, self.options.salt),
            mail=mail,
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
