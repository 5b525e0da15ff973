"""Combining what the replicas of several ranks hold, with `collectives`.

First the replicas of each process are added up, then one collective goes across.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import collectives
from strategy import local_reduce
from strategy.communication import Communication, in_this_process
from strategy.cross_device_ops import (
    CrossDeviceOps,
    Pairs,
    check_runnable,
    copies,
    spread,
)
from strategy.indexed_slices import IndexedSlices
from strategy.options import CommunicationImplementation, CommunicationOptions
from strategy.packs import group_by_size
from strategy.reduce_op import ReduceOp, mean_dtype
from strategy.values import Array, PerReplica

# What each implementation is called in `collectives`; None leaves the choice to it.
ALGORITHMS = {
    CommunicationImplementation.AUTO: None,
    CommunicationImplementation.RING: "ring",
}


class CollectiveAllReduce(CrossDeviceOps):
    """Combines the replicas of all ranks; every rank gets the same bits.

    Without a communicator it combines those of one process. What is wrong with one
    rank's arguments is raised on all ranks, before anything moves.
    """

    def __init__(
        self,
        comm: collectives.Communicator | None = None,
        options: CommunicationOptions | None = None,
    ) -> None:
        self._comm = comm
        self._ranks = 1 if comm is None else comm.size
        self._options = CommunicationOptions() if options is None else options
        check_runnable(self._options, self._ranks)
        self._comms: dict[float, collectives.Communicator] = {}

    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: PerReplica,
        destinations: Any,
        options: CommunicationOptions,
    ) -> Any:
        """Reduce a batch of one."""
        return self.batch_reduce_implementation(
            reduce_op, [(per_replica_value, destinations)], options
        )[0]

    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Pairs,
        options: CommunicationOptions,
    ) -> list[Any]:
        """Reduce dense values in packs and IndexedSlices one by one.

        Values travel together, so all go where any of them goes.
        """
        merged = self._merged(options)
        values = [value.values for value, _ in value_destination_pairs]
        sparse = [isinstance(parts[0], IndexedSlices) for parts in values]
        results: list[Any] = [None] * len(values)
        for is_sparse, reduce in ((False, self._dense), (True, self._sparse)):
            places = [at for at, one in enumerate(sparse) if one is is_sparse]
            if places:
                totals = reduce(reduce_op, [values[at] for at in places], merged)
                for at, total in zip(places, totals, strict=True):
                    results[at] = total
        pairs = value_destination_pairs
        widest = max((to for _, to in pairs), key=copies)
        return [spread(total, widest) for total in results]

    def gather_implementation(
        self,
        per_replica_value: PerReplica,
        destinations: Any,
        axis: int,
        options: CommunicationOptions,
    ) -> Any:
        """Join the components of all ranks along `axis`, in the order of replicas.

        Raises `ValueError` for an axis that the arrays do not have or that is
        negative, `TypeError` for arrays of anything but numbers.
        """
        comm = self._comm_for(self._merged(options))

        def local() -> Array:
            local_reduce.check_axis(per_replica_value.values, axis)
            return local_reduce.concatenated(per_replica_value.values, axis)

        whole = local() if comm is None else comm.all_gather(_or_refusal(local), axis)
        return spread(whole, destinations)

    def in_place(
        self, reduce_op: ReduceOp, packs: Sequence[Any], options: CommunicationOptions
    ) -> list[Any]:
        """Reduce registered packs in place, one `GradientPacks.next()` a replica.

        No array is copied on its way to `collectives`.
        """
        merged = self._merged(options)
        comm, first = self._comm_for(merged), packs[0]
        for flats in zip(*(pack.flats for pack in packs), strict=True):
            for flat in flats[1:]:
                flats[0][...] = local_reduce.wide_sum([flats[0], flat])
        count = len(packs) * self._ranks
        if comm is not None:
            op = reduce_op if len(packs) == 1 else ReduceOp.SUM
            comm.all_reduce_many(
                first, op.value.lower(), first, merged.bytes_per_pack, _name(merged)
            )
        if reduce_op is ReduceOp.MEAN and (comm is None or len(packs) > 1):
            for flat in first.flats:
                flat /= count
        for pack in packs[1:]:
            for flat, its in zip(first.flats, pack.flats, strict=True):
                its[...] = flat
        self._note(reduce_op, merged, len(first), [sum(f.nbytes for f in first.flats)])
        return list(packs)

    def broadcast_first(self, array: Array) -> Array:
        """Return the array of rank 0."""
        if self._comm is None:
            return array
        given: Array = self._comm.broadcast(array, root=0)
        return given

    def _dense(
        self, op: ReduceOp, values: list[Any], options: CommunicationOptions
    ) -> list[Any]:
        """Reduce arrays, last first: the last layer's gradients are ready first."""
        comm, replicas = self._comm_for(options), len(values[0])
        if comm is None:
            self.last = in_this_process(self, op, options, values)
            return [local_reduce.reduced(op, parts) for parts in values]

        def totals() -> list[Array]:
            return [_local_total(parts) for parts in values]

        if replicas == 1:
            across, arrays = op, [parts[0] for parts in values]
        else:
            across, arrays = ReduceOp.SUM, _or_refusal(totals)
            if isinstance(arrays, _Refusal):
                arrays = [arrays]
        packs = group_by_size(arrays[::-1], options.bytes_per_pack)
        sizes = [sum(array.nbytes for array in pack) for pack in packs]
        moved: list[Array] = []
        for pack, size in zip(packs, sizes, strict=True):
            whole = size if options.bytes_per_pack else 0  # 0: `collectives` cuts it
            moved += comm.all_reduce_many(
                pack, across.value.lower(), None, whole, _name(options)
            )
        moved.reverse()
        self._note(op, options, len(values), sizes, replicas)
        dtypes = [parts[0].dtype for parts in values]
        if replicas == 1:
            return [
                array
                if op is ReduceOp.SUM
                else array.astype(mean_dtype(dtype), copy=False)
                for array, dtype in zip(moved, dtypes, strict=True)
            ]
        count = replicas * self._ranks
        return [
            local_reduce.finished(op, total, count, dtype)
            for total, dtype in zip(moved, dtypes, strict=True)
        ]

    def _sparse(
        self, op: ReduceOp, values: list[Any], options: CommunicationOptions
    ) -> list[Any]:
        """Gather the rows of all ranks, in the order of replicas."""
        comm = self._comm_for(options)
        if comm is None:
            self.last = in_this_process(self, op, options, values)
            return [local_reduce.reduced(op, parts) for parts in values]
        results = []
        for parts in values:
            mine = local_reduce.reduced(ReduceOp.SUM, parts)
            rows = comm.all_gather(mine.values, axis=0)
            numbers = comm.all_gather(mine.indices, axis=0)
            total = IndexedSlices(rows, numbers, mine.dense_shape)
            count = len(parts) * self._ranks
            results.append(total if op is ReduceOp.SUM else total.divided_by(count))
        sizes = [result.values.nbytes for result in results]
        self._note(op, options, len(values), sizes, len(values[0]))
        return results

    def _merged(self, options: CommunicationOptions) -> CommunicationOptions:
        merged = self._options.merge(options)
        check_runnable(merged, self._ranks)
        return merged

    def _comm_for(
        self, options: CommunicationOptions
    ) -> collectives.Communicator | None:
        """Return a communicator with the deadline of one call, None for one rank."""
        seconds = options.timeout_seconds
        if self._comm is None or not seconds:
            return self._comm
        if seconds not in self._comms:
            self._comms[seconds] = self._comm.with_options(timeout_s=seconds)
        return self._comms[seconds]

    def _note(
        self,
        op: ReduceOp,
        options: CommunicationOptions,
        tensors: int,
        sizes: Sequence[int],
        replicas: int = 1,
    ) -> None:
        comm, name = self._comm, _name(options)

        def choose(nbytes: int) -> str:
            if name is not None or comm is None:
                return name or "local"
            return comm.choose("all_reduce", nbytes).algorithm

        self.last = Communication(
            op,
            type(self).__name__,
            options.implementation,
            tensors,
            tuple(sizes),
            self._ranks,
            replicas,
            choose=choose,
        )


class _Refusal:
    """Stands for an array that this rank could not make.

    Passed to a collective it raises the error there, so that all ranks hear of it.
    """

    nbytes = 0

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._error


def _or_refusal(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return _Refusal(error)


def _local_total(parts: Sequence[Any]) -> Any:
    local_reduce.check_alike(parts)
    local_reduce.check_numbers(parts[0].dtype, "reduce")
    return local_reduce.wide_sum(parts)


def _name(options: CommunicationOptions) -> str | None:
    return ALGORITHMS[options.implementation]
