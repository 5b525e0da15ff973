"""How the values of the replicas of one process are combined.

`CrossDeviceOps` checks arguments and leaves the work to hooks, four of which are
TensorFlow's: a subclass of your own goes to `MirroredStrategy(cross_device_ops=…)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import collectives
from strategy import local_reduce
from strategy.communication import Communication, in_this_process
from strategy.devices import place_named
from strategy.errors import StructureError
from strategy.options import CommunicationImplementation, CommunicationOptions
from strategy.placing import Place, copied, in_use, moved, place_of, together
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
            op, per_replica(per_replica_value), destinations, checked(options)
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
            check_pair(pair)
            pairs.append((per_replica(pair[0]), pair[1]))
        if not pairs:
            return []
        return self.batch_reduce_implementation(op, pairs, checked(options))

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

    def all_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        columns: Sequence[Sequence[Any]],
        options: CommunicationOptions,
    ) -> list[Sequence[Any]]:
        """Combine arrays, each with a part for every local replica, for all of them."""
        if not columns:
            return []
        batch = [(PerReplica(parts), Mirrored(parts)) for parts in columns]
        reduced = self.batch_reduce_implementation(reduce_op, batch, options)
        return [per_replica(value).values for value in reduced]

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
    without which it is the first of the destinations.
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
        check_nccl(options, [value.values for value, _ in value_destination_pairs])
        results = []
        for value, destinations in value_destination_pairs:
            parts, to = list(value.values), self.reduce_to_device
            parts[0] = moved(
                parts[0], place_named(to) if to else places(destinations)[0]
            )
            results.append(spread(self.total(reduce_op, parts), destinations))
        values = [value.values for value, _ in value_destination_pairs]
        self.last = in_this_process(self, reduce_op, options, values)
        return results

    def total(self, reduce_op: ReduceOp, parts: list[Any]) -> Any:
        """Return the SUM or MEAN of one value's parts."""
        if self.accumulation_fn is not None:
            parts = list(together(parts))
        return local_reduce.reduced(reduce_op, parts, self.accumulation_fn)


def check_pair(pair: Any) -> None:
    """Raise an error for anything but a value and destinations."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ValueError(f"got {pair!r}; wanted a (value, destinations) tuple")
    copies(pair[1])


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


def places(destinations: Any) -> list[Place]:
    """Return the place of each of the devices that `destinations` means."""
    values = [destinations]
    if isinstance(destinations, DistributedValues):
        values = list(destinations.values)
    return [
        place_named(value) if isinstance(value, str) else place_of(plain(value))
        for value in values
    ]


def spread(value: Any, destinations: Any) -> Any:
    """Return `value` for all destinations: each gets its own memory."""
    first, *others = places(destinations)
    value = moved(value, first)
    if not others:
        return value
    return Mirrored([value, *(copied(value, place) for place in others)])


def delivered(value: Any, destinations: Any) -> Any:
    """Return a value that is its own combination: an array on a GPU where it shall be.

    Others stay as they are, since Python's numbers have no place.
    """
    if not in_use() or place_of(value) is None or copies(destinations) > 1:
        return value
    return moved(value, places(destinations)[0])


def per_replica(value: Any) -> PerReplica:
    """Return a value as one with components, which are arrays."""
    if isinstance(value, DistributedValues):
        return PerReplica([plain(part) for part in value.values])
    return PerReplica([plain(value)])


def checked(options: CommunicationOptions | None) -> CommunicationOptions:
    """Return the hints of one call; raise for what are none."""
    given = CommunicationOptions() if options is None else options
    if not isinstance(given, CommunicationOptions):
        raise ValueError(f"options is {given!r}; wanted a CommunicationOptions")
    return given


def check_nccl(options: CommunicationOptions, values: Sequence[Sequence[Any]]) -> None:
    """Raise `UnsupportedError` where NCCL is asked for and cannot reach the parts."""
    if options.implementation is not CommunicationImplementation.NCCL:
        return
    for parts in values:
        away = [at for at, part in enumerate(parts) if place_of(part) is None]
        if away:
            raise without_nccl(f"local replica(s) {away} have no GPU for their arrays")


def without_nccl(reason: str) -> collectives.UnsupportedError:
    """Return the error for an implementation that cannot run."""
    return collectives.UnsupportedError(
        f"implementation NCCL cannot run: {reason}; NCCL moves arrays between GPUs; "
        "wanted one of: AUTO RING"
    )
