"""How the values of the replicas of one process are combined.

`CrossDeviceOps` checks arguments and leaves the work to four hooks, as in TensorFlow:
a subclass of your own goes to `MirroredStrategy(cross_device_ops=…)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import collectives
from strategy import local_reduce
from strategy.communication import Communication, in_this_process
from strategy.errors import StructureError
from strategy.options import CommunicationImplementation, CommunicationOptions
from strategy.packs import concat_and_split, split_again
from strategy.reduce_op import ReduceOp
from strategy.values import DistributedValues, Mirrored, PerReplica, plain

Pairs = Sequence[tuple[PerReplica, Any]]


class CrossDeviceOps:
    """Reduces, gathers and broadcasts values with a component for each replica.

    `destinations` is a distributed value or variable, which stands for the devices of
    its components, an array or the name of a device. Where it means several devices
    the result is Mirrored, with a copy for each; for one device it is bare.
    """

    last: Communication | None = None
    """What the latest reduction was."""

    def reduce(
        self,
        reduce_op: ReduceOp | str,
        per_replica_value: Any,
        destinations: Any,
        options: CommunicationOptions | None = None,
    ) -> Any:
        """Return the SUM or MEAN of the components of one value."""
        op = ReduceOp.parse(reduce_op)
        copies(destinations)
        return self.reduce_implementation(
            op, per_replica(per_replica_value), destinations, _options(options)
        )

    def batch_reduce(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions | None = None,
    ) -> list[Any]:
        """Return the SUM or MEAN of the components of each of several values."""
        op = ReduceOp.parse(reduce_op)
        pairs = []
        for pair in value_destination_pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ValueError(f"got {pair!r}; wanted a (value, destinations) tuple")
            copies(pair[1])
            pairs.append((per_replica(pair[0]), pair[1]))
        if not pairs:
            return []
        return self.batch_reduce_implementation(op, pairs, _options(options))

    def broadcast(self, tensor: Any, destinations: Any) -> Any:
        """Return `tensor` with a copy for each of the destinations."""
        copies(destinations)
        return self.broadcast_implementation(plain(tensor), destinations)

    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: PerReplica,
        destinations: Any,
        options: CommunicationOptions,
    ) -> Any:
        """Do what `reduce` does, with arguments that are checked."""
        raise NotImplementedError("a subclass of CrossDeviceOps says how to reduce")

    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Pairs,
        options: CommunicationOptions,
    ) -> list[Any]:
        """Do what `batch_reduce` does, with arguments that are checked."""
        raise NotImplementedError("a subclass of CrossDeviceOps says how to reduce")

    def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
        """Do what `broadcast` does, with arguments that are checked."""
        return spread(tensor, destinations)

    def gather_implementation(
        self,
        per_replica_value: PerReplica,
        destinations: Any,
        axis: int,
        options: CommunicationOptions,
    ) -> Any:
        """Return the components joined along `axis`, for all destinations."""
        parts = per_replica_value.values
        return spread(local_reduce.concatenated(parts, axis), destinations)


class ReductionToOneDevice(CrossDeviceOps):
    """Adds everything in one place and copies the result from there.

    `accumulation_fn` gets the list of arrays and returns their sum, or what you want in
    its place; MEAN divides that by their number. `reduce_to_device` names the place,
    which on CPUs makes no difference.
    """

    def __init__(
        self,
        reduce_to_device: str | None = None,
        accumulation_fn: local_reduce.Accumulate | None = None,
    ) -> None:
        self.reduce_to_device = reduce_to_device
        self.accumulation_fn = accumulation_fn

    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: PerReplica,
        destinations: Any,
        options: CommunicationOptions,
    ) -> Any:
        """Add, and copy to the destinations."""
        return self.batch_reduce_implementation(
            reduce_op, [(per_replica_value, destinations)], options
        )[0]

    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Pairs,
        options: CommunicationOptions,
    ) -> list[Any]:
        """Add value by value, and copy to the destinations."""
        results = [
            spread(self._total(reduce_op, list(value.values)), destinations)
            for value, destinations in value_destination_pairs
        ]
        values = [value.values for value, _ in value_destination_pairs]
        self.last = in_this_process(self, reduce_op, options, values)
        return results

    def _total(self, reduce_op: ReduceOp, parts: list[Any]) -> Any:
        return local_reduce.reduced(reduce_op, parts, self.accumulation_fn)


class HierarchicalCopyAllReduce(ReductionToOneDevice):
    """Adds each half of the replicas by itself and then the two halves.

    For hosts whose devices form two groups with a slow link between them. `num_packs`
    packs of all arrays together are reduced, 0 moves each array by itself.
    """

    def __init__(self, num_packs: int = 1) -> None:
        super().__init__()
        if num_packs < 0:
            raise ValueError(f"num_packs is {num_packs}; wanted 0 or more")
        self.num_packs = num_packs

    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Pairs,
        options: CommunicationOptions,
    ) -> list[Any]:
        """Pack what is dense by dtype, add the packs and take them apart."""
        values = [value.values for value, _ in value_destination_pairs]
        dense = all(isinstance(part, local_reduce.Dense) for v in values for part in v)
        if not dense or not self.num_packs or len(values) < 2:
            return super().batch_reduce_implementation(
                reduce_op, value_destination_pairs, options
            )
        for parts in values:
            local_reduce.check_alike(parts)
        results: list[Any] = [None] * len(values)
        for dtype in dict.fromkeys(parts[0].dtype for parts in values):
            places = [at for at, v in enumerate(values) if v[0].dtype == dtype]
            replicas = zip(*(values[at] for at in places), strict=True)
            packed = [concat_and_split(list(one), self.num_packs) for one in replicas]
            totals = [
                self._total(reduce_op, list(packs))
                for packs in zip(*packed, strict=True)
            ]
            whole = split_again(totals, [values[at][0] for at in places])
            for at, total in zip(places, whole, strict=True):
                results[at] = spread(total.copy(), value_destination_pairs[at][1])
        self.last = in_this_process(self, reduce_op, options, values, packed=True)
        return results

    def _total(self, reduce_op: ReduceOp, parts: list[Any]) -> Any:
        half = len(parts) // 2
        if half < 2 or not all(isinstance(p, local_reduce.Dense) for p in parts):
            return local_reduce.reduced(reduce_op, parts)
        return local_reduce.reduced(reduce_op, parts, _by_halves)


class NcclAllReduce(HierarchicalCopyAllReduce):
    """Reduces with NCCL, between GPUs alone.

    Raises `collectives.UnsupportedError` for arrays in host memory that would have to
    go to several replicas; what goes to one place is added there.
    """

    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Pairs,
        options: CommunicationOptions,
    ) -> list[Any]:
        """Refuse arrays that NCCL cannot reach."""
        for value, destinations in value_destination_pairs:
            if len(value.values) > 1 and copies(destinations) > 1:
                raise collectives.UnsupportedError(
                    f"NcclAllReduce of {len(value.values)} arrays in host memory: NCCL "
                    "moves arrays between GPUs, and this version has no GPU transport; "
                    "use ReductionToOneDevice or HierarchicalCopyAllReduce"
                )
        return ReductionToOneDevice.batch_reduce_implementation(
            self, reduce_op, value_destination_pairs, options
        )


def copies(destinations: Any) -> int:
    """Return how many devices `destinations` means: `StructureError` if none."""
    if isinstance(destinations, DistributedValues):
        return len(destinations.values)
    if isinstance(destinations, str) and not destinations:
        raise StructureError("destinations is '', which names no device")
    if not isinstance(destinations, str) and not hasattr(destinations, "dtype"):
        raise StructureError(
            f"destinations is {destinations!r}; wanted a distributed value, a "
            "variable, an array or the name of a device"
        )
    return 1


def spread(value: Any, destinations: Any) -> Any:
    """Return `value` for all destinations: each gets its own memory."""
    count = copies(destinations)
    if count == 1:
        return value
    return Mirrored([value, *(value.copy() for _ in range(count - 1))])


def per_replica(value: Any) -> PerReplica:
    """Return a value as one with components, which are arrays."""
    if isinstance(value, DistributedValues):
        return PerReplica([plain(part) for part in value.values])
    return PerReplica([plain(value)])


def _by_halves(parts: list[Any]) -> Any:
    half = len(parts) // 2
    sums = [local_reduce.wide_sum(parts[:half]), local_reduce.wide_sum(parts[half:])]
    return local_reduce.wide_sum(sums)


def _options(options: CommunicationOptions | None) -> CommunicationOptions:
    given = CommunicationOptions() if options is None else options
    if given.implementation is CommunicationImplementation.NCCL:
        check_runnable(given, 1)
    return given


def check_runnable(options: CommunicationOptions, ranks: int) -> None:
    """Raise `UnsupportedError` for an implementation that cannot run here."""
    if options.implementation is CommunicationImplementation.NCCL:
        raise collectives.UnsupportedError(
            f"implementation NCCL cannot run on any of the {ranks} rank(s): this "
            "version moves arrays in host memory and has no GPU transport; wanted one "
            "of: AUTO RING"
        )
