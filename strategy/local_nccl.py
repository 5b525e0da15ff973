"""All-reduces between the GPUs of one process by NCCL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import collectives
from strategy.cross_device_ops import without_nccl
from strategy.indexed_slices import IndexedSlices
from strategy.local_reduce import (
    check_alike,
    check_numbers,
    finished,
    reduced,
    sum_dtype,
)
from strategy.placing import cast, copied, place_of
from strategy.reduce_op import ReduceOp


def refusal(parts: Sequence[Any]) -> str:
    """Return why NCCL cannot add the parts of a value; empty where it can."""
    if isinstance(parts[0], IndexedSlices):
        return "it adds arrays, not IndexedSlices"
    places = [place_of(part) for part in parts]
    away = [index for index, place in enumerate(places) if place is None]
    if away:
        return f"local replica(s) {away} have no GPU for their arrays"
    dtype = np.dtype(parts[0].dtype)
    there = [place for place in places if place is not None]
    return collectives.gpu.local_refusal(there, sum_dtype(dtype))


def spread_sums(
    op: ReduceOp, columns: Sequence[Sequence[Any]], nccl: bool | None
) -> tuple[list[Sequence[Any]], str]:
    """Return the SUM or MEAN of each column, for each of its parts, and who did it.

    What NCCL cannot add, and everything if `nccl` is False, is added where the first
    part is, and copied from there. If it is True that is an `UnsupportedError` instead.
    """
    refused = [refusal(parts) for parts in columns]
    if nccl and any(refused):
        raise without_nccl(next(filter(None, refused)))
    alone = len(columns[0]) == 1
    by_nccl = [at for at, reason in enumerate(refused) if not reason]
    if alone or nccl is False:
        by_nccl = []
    results: list[Sequence[Any]] = [()] * len(columns)
    sums = _all_reduced(op, [columns[at] for at in by_nccl]) if by_nccl else []
    for at, totals in zip(by_nccl, sums, strict=True):
        results[at] = totals
    for at, parts in enumerate(columns):
        if not results[at]:
            total = reduced(op, parts)
            others = (copied(total, place_of(part)) for part in parts[1:])
            results[at] = (total, *others)
    return results, "nccl" if len(by_nccl) == len(columns) else "local"


def _all_reduced(op: ReduceOp, columns: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the SUM or MEAN of each column, for each of its parts, by NCCL."""
    for parts in columns:
        check_alike(parts)
        check_numbers(parts[0].dtype, "reduce")
    wide = [[cast(part, sum_dtype(part.dtype)) for part in parts] for parts in columns]
    sums: list[list[Any]] = collectives.gpu.local_sums(wide)
    return [
        [finished(op, total, len(parts), parts[0].dtype) for total in totals]
        for totals, parts in zip(sums, columns, strict=True)
    ]
