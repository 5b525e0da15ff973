"""Cross-device operations that reduce all values of a batch in a few packs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import collectives
from strategy import local_nccl, local_reduce
from strategy.communication import in_this_process
from strategy.cross_device_ops import (
    Pairs,
    ReductionToOneDevice,
    check_nccl,
    copies,
    places,
    spread,
)
from strategy.options import CommunicationOptions
from strategy.packs import concat_and_split, split_again
from strategy.placing import copied, on, place_of
from strategy.reduce_op import ReduceOp
from strategy.values import Mirrored


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
        if not self.num_packs or len(values) < 2 or not _can_be_packed(values):
            return super().batch_reduce_implementation(
                reduce_op, value_destination_pairs, options
            )
        check_nccl(options, values)
        results: list[Any] = [None] * len(values)
        for parts in values:
            local_reduce.check_alike(parts)
        for dtype in dict.fromkeys(parts[0].dtype for parts in values):
            numbers = [n for n, parts in enumerate(values) if parts[0].dtype == dtype]
            replicas = zip(*(values[number] for number in numbers), strict=True)
            packed = [_packed(list(one), self.num_packs) for one in replicas]
            totals = [
                self.total(reduce_op, list(packs))
                for packs in zip(*packed, strict=True)
            ]
            with on(place_of(totals[0])):
                whole = split_again(totals, [values[number][0] for number in numbers])
            for number, total in zip(numbers, whole, strict=True):
                alone = copied(total, place_of(total))
                results[number] = spread(alone, value_destination_pairs[number][1])
        self.last = in_this_process(self, reduce_op, options, values, packed=True)
        return results

    def total(self, reduce_op: ReduceOp, parts: list[Any]) -> Any:
        """Add each half of the parts by itself, and then the halves."""
        half = len(parts) // 2
        if half < 2 or not all(map(local_reduce.is_dense, parts)):
            return local_reduce.reduced(reduce_op, parts)
        return local_reduce.reduced(reduce_op, parts, _by_halves)


class NcclAllReduce(HierarchicalCopyAllReduce):
    """Reduces with NCCL, between the GPUs of this process.

    Raises `collectives.UnsupportedError` for what would have to go to several replicas
    and which NCCL cannot reach or add; what goes to one place is added there.
    """

    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Pairs,
        options: CommunicationOptions,
    ) -> list[Any]:
        """Reduce by NCCL what goes to several devices, at once."""
        results: list[Any] = [None] * len(value_destination_pairs)
        by_nccl, others = [], []
        for number, (value, to) in enumerate(value_destination_pairs):
            parts = value.values
            dense = local_reduce.is_dense(parts[0])
            if len(parts) == 1 or copies(to) == 1 or not dense:
                others.append(number)
                continue
            reason = local_nccl.refusal(parts)
            if reason:
                raise collectives.UnsupportedError(
                    f"NcclAllReduce of {len(parts)} arrays: {reason}; NCCL adds arrays "
                    "on GPUs: use ReductionToOneDevice or HierarchicalCopyAllReduce"
                )
            by_nccl.append(number)
        for numbers, reduce in ((by_nccl, self._by_nccl), (others, self._by_copies)):
            pairs = [value_destination_pairs[number] for number in numbers]
            made = reduce(reduce_op, pairs, options) if pairs else []
            for number, result in zip(numbers, made, strict=True):
                results[number] = result
        return results

    def _by_nccl(
        self, reduce_op: ReduceOp, pairs: Pairs, options: CommunicationOptions
    ) -> list[Any]:
        columns = [value.values for value, _ in pairs]
        sums, by = local_nccl.spread_sums(reduce_op, columns, nccl=True)
        self.last = in_this_process(self, reduce_op, options, columns, by=by)
        return [
            Mirrored(parts)
            if places(to) == list(map(place_of, parts))
            else spread(parts[0], to)
            for parts, (_, to) in zip(sums, pairs, strict=True)
        ]

    def _by_copies(
        self, reduce_op: ReduceOp, pairs: Pairs, options: CommunicationOptions
    ) -> list[Any]:
        return ReductionToOneDevice.batch_reduce_implementation(
            self, reduce_op, pairs, options
        )


def _packed(arrays: list[Any], num_packs: int) -> list[Any]:
    with on(place_of(arrays[0])):
        return concat_and_split(arrays, num_packs)


def _can_be_packed(values: Sequence[Sequence[Any]]) -> bool:
    """Return whether all are arrays, and those of each replica are in one place."""
    if not all(local_reduce.is_dense(part) for parts in values for part in parts):
        return False
    return all(len(set(map(place_of, one))) == 1 for one in zip(*values, strict=True))


def _by_halves(parts: list[Any]) -> Any:
    half = len(parts) // 2
    sums = [local_reduce.wide_sum(parts[:half]), local_reduce.wide_sum(parts[half:])]
    return local_reduce.wide_sum(sums)
