"""What a rank gives to a reduction, and what it makes of what comes back.

A list of values, each with a part for every local replica, is cut into *shares*. Each
is one call of `collectives`: for every value the sum of its parts goes there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from strategy import local_reduce
from strategy.packs import group_by_size
from strategy.placing import Place, cast, moved
from strategy.reduce_op import ReduceOp, mean_dtype
from strategy.refusal import Refusal, or_refusal


class Share(NamedTuple):
    """Some of the values, which travel together."""

    places: list[int]
    """Where they are in the list."""
    parts: list[Sequence[Any]]
    arrays: list[Any]
    """What travels for each of them."""
    nbytes: int
    homes: list[Place]
    """Where the results belong, of values that were elsewhere; empty if none was."""

    def op_across(self, op: ReduceOp) -> ReduceOp:
        """Return what the ranks do; a MEAN over several replicas is divided here."""
        return op if len(self.parts[0]) == 1 else ReduceOp.SUM

    def finished(self, op: ReduceOp, come: list[Any], ranks: int) -> list[Any]:
        """Return the results from what has come back."""
        results = self._divided(op, come, ranks)
        return list(map(moved, results, self.homes)) if self.homes else results

    def _divided(self, op: ReduceOp, come: list[Any], ranks: int) -> list[Any]:
        replicas = len(self.parts[0])
        if replicas == 1 and op is ReduceOp.SUM:
            return come
        dtypes = [parts[0].dtype for parts in self.parts]
        if replicas == 1:  # `collectives` has divided; of integers, in float64
            return [
                cast(array, mean_dtype(dtype)) if dtype.kind in "iu" else array
                for array, dtype in zip(come, dtypes, strict=True)
            ]
        return [
            local_reduce.finished(op, total, replicas * ranks, dtype)
            for total, dtype in zip(come, dtypes, strict=True)
        ]


def shares(
    values: Sequence[Sequence[Any]],
    bytes_per_pack: int,
    origin: Place = None,
    homes: Sequence[Place] = (),
) -> Iterator[Share]:
    """Cut a list into shares of so many bytes; 0 makes one of everything.

    The last values come first: the last layer's gradients are ready first. With
    `homes`, where they are, values are brought to `origin`, from which they go.
    """
    begun = len(values)
    firsts = [parts[0] for parts in reversed(values)]
    for pack in group_by_size(firsts, bytes_per_pack):
        places = list(range(begun - 1, begun - 1 - len(pack), -1))
        begun -= len(pack)
        parts = [values[at] for at in places]
        there = [homes[at] for at in places] if homes else []
        arrays: list[Any] = pack
        if there or len(parts[0]) > 1:
            make = partial(_local_totals, parts, origin, bool(there))
            totals = or_refusal(make)
            arrays = [totals] if isinstance(totals, Refusal) else totals
        yield Share(places, parts, arrays, sum(array.nbytes for array in arrays), there)


def _local_totals(
    values: list[Sequence[Any]], origin: Place, moving: bool
) -> list[Any]:
    """Return the sums over the replicas of this process."""
    if moving:
        values = [(moved(parts[0], origin), *parts[1:]) for parts in values]
    if len(values[0]) == 1:
        return [parts[0] for parts in values]
    for parts in values:
        local_reduce.check_alike(parts)
        local_reduce.check_numbers(parts[0].dtype, "reduce")
    return [local_reduce.wide_sum(parts) for parts in values]
