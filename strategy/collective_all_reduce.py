"""Combining what the replicas of several ranks hold, with `collectives`.

First the replicas of each process are added up, then one collective goes across.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import collectives
from strategy import local_nccl, local_reduce
from strategy.communication import Communication, in_this_process
from strategy.cross_device_ops import (
    CrossDeviceOps,
    Pairs,
    check_nccl,
    copies,
    places,
    spread,
    without_nccl,
)
from strategy.errors import ElementTypeError
from strategy.indexed_slices import IndexedSlices
from strategy.options import CommunicationImplementation, CommunicationOptions
from strategy.placing import Place, copied, in_use, moved, on_host, place_of
from strategy.reduce_op import ReduceOp, mean_dtype
from strategy.refusal import Refusal, or_refusal
from strategy.shares import Share, shares
from strategy.values import PerReplica

# What each implementation is called in `collectives`; None leaves the choice to it.
ALGORITHMS = {
    CommunicationImplementation.AUTO: None,
    CommunicationImplementation.RING: "ring",
    CommunicationImplementation.NCCL: "nccl",
}
# Whether the GPUs of one process shall use NCCL; None: if they can.
WANTED = {
    CommunicationImplementation.RING: False,
    CommunicationImplementation.NCCL: True,
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
        place: Place = None,
        no_nccl: str = "",
    ) -> None:
        """Combine for the ranks of `comm`.

        Args:
            comm: the ranks, None for one process.
            options: hints that hold for all calls.
            place: the GPU that this rank's arrays go from and to, None without.
            no_nccl: why some rank cannot have NCCL, the same on all. All ranks then
                move host arrays: a call is made with those by all ranks or by none.
        """
        self._comm, self._place, self._no_nccl = comm, place, no_nccl
        self._ranks = 1 if comm is None else comm.size
        self._options = self._checked(options or CommunicationOptions())
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
        values = [value.values for value, _ in value_destination_pairs]
        results = self._combined(reduce_op, values, self._merged(options))
        wanted = {id(to): to for _, to in value_destination_pairs}
        widest = max(wanted.values(), key=copies)
        if copies(widest) == 1:
            return [
                moved(total, places(to)[0])
                for total, (_, to) in zip(results, value_destination_pairs, strict=True)
            ]
        return [spread(total, widest) for total in results]

    def all_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        columns: Sequence[Sequence[Any]],
        options: CommunicationOptions,
    ) -> list[Sequence[Any]]:
        """Reduce as a batch; each local replica gets memory of its own."""
        if not columns:
            return []
        merged = self._merged(options)
        if self._comm is None and place_of(columns[0][0]) is not None:
            nccl = WANTED.get(merged.implementation)
            results, by = local_nccl.spread_sums(reduce_op, columns, nccl)
            self.last = in_this_process(self, reduce_op, merged, columns, by=by)
            return results
        totals = self._combined(reduce_op, columns, merged)
        if len(columns[0]) == 1:
            return [(total,) for total in totals]
        return [
            (total, *(copied(total, place_of(part)) for part in parts[1:]))
            for total, parts in zip(totals, columns, strict=True)
        ]

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

        def local() -> Any:
            local_reduce.check_axis(per_replica_value.values, axis)
            return local_reduce.concatenated(per_replica_value.values, axis)

        whole = local() if comm is None else self._gathered(comm, local, axis)
        return spread(whole, destinations)

    def _gathered(
        self, comm: collectives.Communicator, local: Callable[[], Any], axis: int
    ) -> Any:
        mine = or_refusal(local)
        if not self._no_nccl or isinstance(mine, Refusal):
            return comm.all_gather(mine, axis)
        return moved(comm.all_gather(on_host(mine), axis), place_of(mine))

    def in_place(
        self, reduce_op: ReduceOp, packs: Sequence[Any], options: CommunicationOptions
    ) -> list[Any]:
        """Reduce registered packs in place, one `GradientPacks.next()` a replica.

        With one replica on each rank no array is copied on its way to `collectives`.
        """
        merged, first = self._merged(options), packs[0]
        dtypes = [flat.dtype for flat in first.flats]
        if reduce_op is ReduceOp.MEAN and dtypes != [mean_dtype(d) for d in dtypes]:
            raise ElementTypeError(
                f"MEAN of registered packs of {[str(dtype) for dtype in dtypes]}: that "
                "of integers is a float and has no room in them"
            )
        comm = self._comm_for(merged)
        if len(packs) == 1 and comm is not None:
            op, pack_bytes = reduce_op.value.lower(), merged.bytes_per_pack
            comm.all_reduce_many(first, op, first, pack_bytes, _name(merged))
            sizes = [sum(flat.nbytes for flat in first.flats)]
            self._note(reduce_op, merged, len(first), sizes)
            return [first]
        columns = [list(parts) for parts in zip(*(p.flats for p in packs), strict=True)]
        totals = self._dense(reduce_op, columns, merged)
        for pack in packs:
            for flat, total in zip(pack.flats, totals, strict=True):
                flat[...] = total
        return list(packs)

    def broadcast_first(self, array: Any) -> Any:
        """Return the array of rank 0."""
        if self._comm is None:
            return array
        mine = on_host(array) if self._no_nccl else array
        return moved(self._comm.broadcast(mine, root=0), place_of(array))

    def start(
        self, op: ReduceOp, values: list[Any], options: CommunicationOptions
    ) -> list[tuple[list[int], Callable[[], list[Any]]]]:
        """Start to reduce arrays; return the packs, in the order in which they move.

        Each is the places of its values, and a function that waits for their results.
        Where replicas are added up here, that of one pack goes on while others move.
        """
        merged = self._merged(options)
        comm, sizes, under_way = self._comm_for(merged), [], []
        origin, homes = (None, []) if comm is None else self._origin(values, merged)
        if comm is None:
            check_nccl(merged, values)
        for share in shares(values, merged.bytes_per_pack, origin, homes):
            if comm is None:
                done = [local_reduce.reduced(op, parts) for parts in share.parts]
                wait: Callable[[], list[Any]] = partial(list, done)
            else:
                arguments = self._arguments(op, share, merged)
                handle = comm.start_all_reduce_many(*arguments)
                wait = partial(self._arrived, op, share, handle)
            sizes.append(share.nbytes)
            under_way.append((share.places, wait))
        self._note(op, merged, len(values), sizes, len(values[0]), origin)
        return under_way

    def _combined(
        self,
        op: ReduceOp,
        values: Sequence[Sequence[Any]],
        options: CommunicationOptions,
    ) -> list[Any]:
        """Return the totals of values; the dense ones travel together."""
        sparse = [isinstance(parts[0], IndexedSlices) for parts in values]
        if not any(sparse):
            return self._dense(op, values, options)
        results: list[Any] = [None] * len(values)
        for is_sparse, reduce in ((False, self._dense), (True, self._sparse)):
            chosen = [at for at, one in enumerate(sparse) if one is is_sparse]
            if chosen:
                totals = reduce(op, [values[at] for at in chosen], options)
                for at, total in zip(chosen, totals, strict=True):
                    results[at] = total
        return results

    def _dense(
        self,
        op: ReduceOp,
        values: Sequence[Sequence[Any]],
        options: CommunicationOptions,
    ) -> list[Any]:
        """Reduce arrays, pack after pack."""
        comm = self._comm_for(options)
        if comm is None:
            check_nccl(options, values)
            self.last = in_this_process(self, op, options, values)
            return [local_reduce.reduced(op, parts) for parts in values]
        results: list[Any] = [None] * len(values)
        origin, homes = self._origin(values, options)
        sizes = []
        for share in shares(values, options.bytes_per_pack, origin, homes):
            come = comm.all_reduce_many(*self._arguments(op, share, options))
            totals = share.finished(op, come, self._ranks)
            for at, total in zip(share.places, totals, strict=True):
                results[at] = total
            sizes.append(share.nbytes)
        self._note(op, options, len(values), sizes, len(values[0]), origin)
        return results

    def _origin(
        self, values: Sequence[Sequence[Any]], options: CommunicationOptions
    ) -> tuple[Place, list[Place]]:
        """Return where values that travel together go from, and where those are now.

        That is a GPU if one of them is on one, or NCCL is to move them. Where all are
        there already the second result is empty.
        """
        if not in_use() and self._place is None:
            return None, []
        homes = [place_of(parts[0]) for parts in values]
        origin = next((place for place in homes if place is not None), None)
        nccl = options.implementation is CommunicationImplementation.NCCL
        if self._place is not None and (nccl or origin is not None):
            origin = self._place
        origin = None if self._no_nccl else origin
        return origin, [] if homes == [origin] * len(homes) else homes

    def _arguments(
        self, op: ReduceOp, share: Share, options: CommunicationOptions
    ) -> tuple[Any, ...]:
        """Return the arguments of all_reduce_many for a share."""
        limit = share.nbytes if options.bytes_per_pack else 0  # `collectives` cuts it
        across = share.op_across(op).value.lower()
        return share.arrays, across, None, limit, _name(options)

    def _arrived(
        self, op: ReduceOp, share: Share, handle: collectives.Handle[list[Any]]
    ) -> list[Any]:
        return share.finished(op, handle.wait(), self._ranks)

    def _sparse(
        self,
        op: ReduceOp,
        values: Sequence[Sequence[Any]],
        options: CommunicationOptions,
    ) -> list[Any]:
        """Gather the rows of all ranks, in the order of replicas."""
        comm = self._comm_for(options)
        if comm is None:
            self.last = in_this_process(self, op, options, values)
            return [local_reduce.reduced(op, parts) for parts in values]
        results = []
        for parts in values:
            mine = or_refusal(partial(local_reduce.reduced, ReduceOp.SUM, parts))
            if isinstance(mine, Refusal):
                comm.all_gather(mine)
            rows, numbers = (
                self._gathered(comm, partial(getattr, mine, name), 0)
                for name in ("values", "indices")
            )
            total = IndexedSlices(rows, numbers, mine.dense_shape)
            count = len(parts) * self._ranks
            results.append(total if op is ReduceOp.SUM else total.divided_by(count))
        sizes = [result.values.nbytes for result in results]
        self._note(op, options, len(values), sizes, len(values[0]))
        return results

    def _merged(self, options: CommunicationOptions) -> CommunicationOptions:
        return self._checked(self._options.merge(options))

    def _checked(self, options: CommunicationOptions) -> CommunicationOptions:
        nccl = options.implementation is CommunicationImplementation.NCCL
        if nccl and self._no_nccl:
            raise without_nccl(self._no_nccl)
        return options

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
        place: Place = None,
    ) -> None:
        comm, name = self._comm, _name(options)
        device = "cpu" if place is None else "cuda"

        def choose(nbytes: int) -> str:
            if name is not None or comm is None:
                return name or "local"
            return comm.choose("all_reduce", nbytes, device=device).algorithm

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


def _name(options: CommunicationOptions) -> str | None:
    return ALGORITHMS[options.implementation]
