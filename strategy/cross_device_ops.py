"""Moving arrays between the replicas of several ranks, with `collectives`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import collectives
from strategy.options import CommunicationImplementation, CommunicationOptions
from strategy.reduce_op import ReduceOp, mean_dtype
from strategy.values import Array

# What each implementation is called in `collectives`; None leaves the choice to it.
ALGORITHMS = {
    CommunicationImplementation.AUTO: None,
    CommunicationImplementation.RING: "ring",
}


@dataclass(frozen=True)
class Communication:
    """How a list of arrays was all-reduced, for people who ask what was used.

    With AUTO, `collectives.world().choose("all_reduce", nbytes)` tells the algorithm
    that a pack of some size gets, and why.
    """

    reduce_op: ReduceOp
    implementation: CommunicationImplementation
    tensors: int
    pack_bytes: tuple[int, ...]
    """The bytes in each pack, in the order in which they were sent."""
    ranks: int


class CollectiveAllReduce:
    """Combines one contribution of each rank; every rank gets the same bits."""

    def __init__(
        self, comm: collectives.Communicator, options: CommunicationOptions
    ) -> None:
        check_runnable(options, comm.size)
        self._comm = comm
        self._options = options
        self._comms: dict[float, collectives.Communicator] = {}
        self.last: Communication | None = None
        """What the latest all-reduce was."""

    def all_reduce(
        self,
        reduce_op: ReduceOp,
        arrays: Sequence[Array],
        options: CommunicationOptions | None = None,
    ) -> list[Array]:
        """Return the SUM or MEAN over ranks of each array.

        They travel last first, since the gradients of the last layer are ready first,
        in packs of about `bytes_per_pack`.
        """
        merged, comm = self._for_call(options)
        algorithm = ALGORITHMS[merged.implementation]
        op = reduce_op.value.lower()
        packs = group_by_size(list(reversed(arrays)), merged.bytes_per_pack)
        sizes = tuple(sum(array.nbytes for array in pack) for pack in packs)
        reduced: list[Array] = []
        for pack, size in zip(packs, sizes, strict=True):
            whole = size if merged.bytes_per_pack else 0  # 0: `collectives` cuts it
            reduced += comm.all_reduce_many(pack, op, None, whole, algorithm)
        reduced.reverse()
        self.last = Communication(
            reduce_op, merged.implementation, len(arrays), sizes, comm.size
        )
        if reduce_op is ReduceOp.SUM:
            return reduced
        return [
            result.astype(mean_dtype(array.dtype), copy=False)
            for result, array in zip(reduced, arrays, strict=True)
        ]

    def all_gather(
        self, array: Array, axis: int, options: CommunicationOptions | None = None
    ) -> Array:
        """Return all ranks' arrays joined along `axis`, whose length may differ.

        Raises `ValueError` for an axis that the array does not have or that is
        negative, `TypeError` for an array of anything but numbers.
        """
        if not 0 <= axis < array.ndim:
            raise ValueError(
                f"axis is {axis}; wanted 0 or more and less than the "
                f"{array.ndim} dimension(s) of the array"
            )
        if array.dtype.kind not in "iufcV":  # V: bfloat16 and its kin
            raise TypeError(f"gather of dtype {array.dtype}; wanted numbers")
        _, comm = self._for_call(options)
        gathered: Array = comm.all_gather(array, axis=axis)
        return gathered

    def broadcast(self, array: Array) -> Array:
        """Return the array of rank 0."""
        given: Array = self._comm.broadcast(array, root=0)
        return given

    def _for_call(
        self, options: CommunicationOptions | None
    ) -> tuple[CommunicationOptions, collectives.Communicator]:
        """Return the options of one call and a communicator with its deadline."""
        merged = self._options.merge(options)
        check_runnable(merged, self._comm.size)
        seconds = merged.timeout_seconds
        if not seconds:
            return merged, self._comm
        if seconds not in self._comms:
            self._comms[seconds] = self._comm.with_options(timeout_s=seconds)
        return merged, self._comms[seconds]


def check_runnable(options: CommunicationOptions, ranks: int) -> None:
    """Raise `UnsupportedError` for an implementation that cannot run here."""
    if options.implementation not in ALGORITHMS:
        known = " ".join(implementation.name for implementation in ALGORITHMS)
        raise collectives.UnsupportedError(
            f"implementation {options.implementation.name} cannot run on any of the "
            f"{ranks} rank(s): this version moves arrays in host memory and has no GPU "
            f"transport; wanted one of: {known}"
        )


def group_by_size(arrays: Sequence[Array], bytes_per_pack: int) -> list[list[Array]]:
    """Cut a list into packs, in order; 0 bytes means one pack of everything.

    A pack is closed once it holds more than `bytes_per_pack`, so it may exceed that by
    up to one array.
    """
    packs: list[list[Array]] = []
    room = 0
    for array in arrays:
        if not packs or (bytes_per_pack and room < 0):
            packs.append([])
            room = bytes_per_pack
        packs[-1].append(array)
        room -= array.nbytes
    return packs
