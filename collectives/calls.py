"""One function per collective: arguments in, a described and runnable `Call` out.

Preparing a call is purely local. What it finds wrong it raises, and the communicator
puts that into the descriptor instead of leaving the other ranks waiting. Nothing is
moved before all ranks have agreed on the descriptor; `out` is written only after.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from collectives import packing
from collectives.algorithms import AUTO, TABLE
from collectives.algorithms.stepwise import (
    Task,
    all_gather_bytes,
    all_gather_rows,
    broadcast_bytes,
)
from collectives.buffers import as_array, check_out, flat_source, flat_work
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.group import Group
from collectives.kernels import Array, ReduceOp, kernel_for
from collectives.options import Options
from collectives.partition import bounds_of
from collectives.plans import Plan, Planner
from collectives.selection import Choice


class Call(NamedTuple):
    """A call that can be agreed upon and then run."""

    descriptor: Descriptor
    run: Callable[[], Any]


class Caller:
    """Prepares the calls of one communicator."""

    def __init__(self, group: Group, options: Options) -> None:
        """Prepare calls for `group` under `options`."""
        self.group = group
        self.options = options
        self._planner = Planner(group, options)

    def all_reduce(
        self, x: Any, op: str | ReduceOp, out: Any, algorithm: str | None
    ) -> Call:
        """Combine over all ranks; everybody gets the result."""
        return self._combine("all_reduce", x, op, -1, out, algorithm)

    def reduce(
        self, x: Any, op: str | ReduceOp, root: int, out: Any, algorithm: str | None
    ) -> Call:
        """Combine over all ranks; the root gets the result, the others None."""
        self._check_root(root)
        return self._combine("reduce", x, op, root, out, algorithm)

    def _combine(
        self,
        collective: str,
        x: Any,
        op: str | ReduceOp,
        root: int,
        out: Any,
        algorithm: str | None,
    ) -> Call:
        array = as_array(x)
        plan = self._planner.plan(collective, array, op, root, algorithm)
        if root not in (-1, self.group.rank):
            return Call(plan.descriptor, lambda: self._give(plan, array))
        return self._moving(plan, array, out)

    def _moving(self, plan: Plan, array: Array, out: Any) -> Call:
        """Return the call that runs a plan into a new array or into `out`."""
        target = _target(array, out, plan.result_dtype)

        def run() -> Array:
            self._planner.move(plan, array, target)
            return target

        return Call(plan.descriptor, run)

    def _give(self, plan: Plan, array: Array) -> None:
        """Take part in a reduction whose result goes to another rank."""
        source = flat_source(array, plan.work_dtype)
        self._planner.move_flat(plan, source, np.empty_like(source))

    def broadcast(self, x: Any, root: int, out: Any, algorithm: str | None) -> Call:
        """Give everybody the root's array; the others' `x` tells shape and dtype."""
        self._check_root(root)
        array = as_array(x)
        plan = self._planner.plan("broadcast", array, None, root, algorithm)
        return self._moving(plan, array, out)

    def all_gather(self, x: Any, axis: int, out: Any, algorithm: str | None) -> Call:
        """Join the ranks' arrays along `axis`, in rank order; lengths may differ."""
        array = as_array(x)
        array = array.reshape(1) if array.ndim == 0 else array
        axis = _check_axis(axis, array.ndim)
        requested = algorithm or self.options.algorithm
        if requested not in TABLE["all_gather"]:
            self._planner.choose("all_gather", 0, None, algorithm)
        open_shape = tuple(-1 if i == axis else n for i, n in enumerate(array.shape))
        descriptor = Descriptor(
            "all_gather",
            dtype=str(array.dtype),
            shape=open_shape,
            axis=axis,
            algorithm=requested if requested in TABLE["all_gather"] else AUTO,
        )
        out_length = -1
        if out is not None:
            length = np.shape(out)[axis] if np.ndim(out) == array.ndim else -1
            shape = (*array.shape[:axis], length, *array.shape[axis + 1 :])
            out = check_out(out, shape, array.dtype)
            out_length = length
            if np.may_share_memory(out, array):
                array = array.copy()
        return Call(
            descriptor,
            lambda: self._gather(array, axis, out, out_length, descriptor.algorithm),
        )

    def _gather(
        self, array: Array, axis: int, out: Array | None, out_length: int, name: str
    ) -> Array:
        group, timeout_s = self.group, self.options.timeout_s
        row = np.array([array.shape[axis], out_length], np.int64)
        lengths, out_lengths = all_gather_rows(group, row, timeout_s).T.tolist()
        total = sum(lengths)
        for rank, given in enumerate(out_lengths):
            if given not in (-1, total):
                raise InvalidArgumentError(
                    f"rank {rank}: out has length {given} along axis {axis}; "
                    f"wanted {total}, the sum of {lengths}"
                )
        if out is None:
            shape = (*array.shape[:axis], total, *array.shape[axis + 1 :])
            out = np.empty(shape, array.dtype)
        per_row = array.size // array.shape[axis] if array.shape[axis] else 0
        if total and not array.shape[axis]:
            per_row = out.size // total
        target = np.moveaxis(out, axis, 0)
        work, direct = flat_work(target, array.dtype)
        choice = self._planner.choose("all_gather", work.nbytes, None, name)
        task = Task(
            group,
            bounds_of([length * per_row for length in lengths]),
            flat_source(np.moveaxis(array, axis, 0), array.dtype),
            work,
            timeout_s=timeout_s,
            segment_bytes=self.options.segment_bytes,
            own_block_only=True,
        )
        TABLE["all_gather"][choice.algorithm].run(task)
        if not direct:
            target[...] = work.reshape(target.shape)
        return out

    def barrier(self) -> Call:
        """Return when every rank has arrived: that is what agreeing does."""
        return Call(Descriptor("barrier"), lambda: None)

    def all_reduce_many(
        self,
        arrays: Sequence[Any],
        op: str | ReduceOp,
        out: Sequence[Any] | None,
        bytes_per_pack: int,
        algorithm: str | None,
    ) -> Call:
        """Combine a list of arrays, small ones packed together."""
        if bytes_per_pack < 0:
            raise InvalidArgumentError(
                f"bytes_per_pack is {bytes_per_pack}; wanted 0 (automatic) or more"
            )
        given = [as_array(x) for x in arrays]
        outs = [None] * len(given) if out is None else list(out)
        if len(outs) != len(given):
            raise InvalidArgumentError(
                f"out has {len(outs)} arrays; wanted {len(given)}, one for each input"
            )
        kernels = [kernel_for(op, array.dtype) for array in given]
        requested = algorithm or self.options.algorithm
        targets = [
            _target(array, its_out, kernel.result_dtype)
            for array, its_out, kernel in zip(given, outs, kernels, strict=True)
        ]
        packs = packing.make_packs(
            [kernel.work_dtype for kernel in kernels],
            [array.size for array in given],
            bytes_per_pack,
        )
        plans = [
            self._planner.plan_pack(kernels[pack.members[0]], pack.elements, algorithm)
            for pack in packs
        ]
        descriptor = Descriptor(
            "all_reduce_many",
            dtype="list",
            op=str(kernels[0].op) if kernels else "",
            shape=tuple((str(array.dtype), array.shape) for array in given),
            algorithm=f"{requested}, packs of {bytes_per_pack}",
        )

        def run() -> list[Array]:
            for pack, plan in zip(packs, plans, strict=True):
                self._move_pack(pack, plan, given, targets)
            return targets

        return Call(descriptor, run)

    def _move_pack(
        self, pack: packing.Pack, plan: Plan, given: list[Array], targets: list[Array]
    ) -> None:
        if len(pack.members) == 1:
            (position,) = pack.members
            self._planner.move(plan, given[position], targets[position])
            return
        buffer = np.empty(pack.elements, pack.dtype)
        members = [given[position] for position in pack.members]
        packing.pack_into(buffer, [flat_source(m, pack.dtype) for m in members])
        self._planner.move_flat(plan, buffer, buffer)
        parts = packing.unpack(buffer, [m.size for m in members])
        for position, part in zip(pack.members, parts, strict=True):
            targets[position][...] = part.reshape(targets[position].shape)

    def broadcast_object(self, value: Any, root: int) -> Call:
        """Give everybody the root's object, by pickle."""
        self._check_root(root)
        mine = pickle.dumps(value) if self.group.rank == root else b""
        return Call(
            Descriptor("broadcast_object", root=root),
            lambda: pickle.loads(
                broadcast_bytes(self.group, mine, root, self.options.timeout_s)
            ),
        )

    def all_gather_object(self, value: Any) -> Call:
        """Give everybody the list of all ranks' objects, by pickle."""
        mine = pickle.dumps(value)
        return Call(
            Descriptor("all_gather_object"),
            lambda: [
                pickle.loads(data)
                for data in all_gather_bytes(self.group, mine, self.options.timeout_s)
            ],
        )

    def choose(
        self, collective: str, nbytes: int, dtype: np.dtype[Any], op: str
    ) -> Choice:
        """Return the algorithm that a call without a wish would get."""
        if collective not in TABLE:
            raise InvalidArgumentError(
                f"unknown collective {collective!r}; known: {' '.join(TABLE)}"
            )
        if collective not in ("all_reduce", "reduce"):
            return self._planner.choose(collective, nbytes, None, None)
        kernel = kernel_for(op, dtype)
        travelling = nbytes // dtype.itemsize * kernel.work_dtype.itemsize
        return self._planner.choose(collective, travelling, kernel, None)

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.group.size:
            raise InvalidArgumentError(
                f"root is {root}; wanted a rank from 0 to {self.group.size - 1}"
            )


def _target(array: Array, out: Any, dtype: np.dtype[Any]) -> Array:
    """Return the array that the result goes to: new, or the caller's `out`."""
    if out is None:
        return np.empty(array.shape, dtype)
    return check_out(out, array.shape, dtype)


def _check_axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise InvalidArgumentError(f"axis is {axis}; wanted one of the {ndim} axes")
    return axis % ndim
