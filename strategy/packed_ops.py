"""Cross-device operations that reduce all values of a batch in a few packs."""

from __future__ import annotations

from typing import Any

import collectives
from strategy import local_reduce
from strategy.communication import in_this_process
from strategy.cross_device_ops import Pairs, ReductionToOneDevice, copies, spread
from strategy.options import CommunicationOptions
from strategy.packs import concat_and_split, split_again
from strategy.reduce_op import ReduceOp


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
                self.total(reduce_op, list(packs))
                for packs in zip(*packed, strict=True)
            ]
            whole = split_again(totals, [values[at][0] for at in places])
            for at, total in zip(places, whole, strict=True):
                results[at] = spread(total.copy(), value_destination_pairs[at][1])
        self.last = in_this_process(self, reduce_op, options, values, packed=True)
        return results

    def total(self, reduce_op: ReduceOp, parts: list[Any]) -> Any:
        """Add each half of the parts by itself, and then the halves."""
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


def _by_halves(parts: list[Any]) -> Any:
    half = len(parts) // 2
    sums = [local_reduce.wide_sum(parts[:half]), local_reduce.wide_sum(parts[half:])]
    return local_reduce.wide_sum(sums)
