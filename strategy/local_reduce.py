"""Reducing and joining the arrays that the replicas of one process hold.

They are brought to where the first of them is, and combined there. As between ranks:
16-bit floats are added in float32 and rounded once, MEAN divides once, at the end, and
by true division. The result never shares memory with an operand, except for the SUM of
one array, which is that array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from strategy.errors import ElementTypeError, StructureError
from strategy.indexed_slices import IndexedSlices, joined
from strategy.placing import HOST, cast, place_of, there, together
from strategy.reduce_op import ReduceOp, mean_dtype
from strategy.values import Array

Accumulate = Callable[[list[Any]], Any]


def reduced(
    op: ReduceOp, parts: Sequence[Any], accumulate: Accumulate | None = None
) -> Any:
    """Return the SUM or MEAN of one array, or IndexedSlices, per replica.

    `accumulate` adds dense arrays in place of us, with the first one's GPU being the
    current one; MEAN still divides by their number.
    Raises `StructureError` where shapes or dtypes differ, `ElementTypeError` for what
    are not numbers.
    """
    if any(isinstance(part, IndexedSlices) for part in parts):
        return _reduced_slices(op, parts)
    check_alike(parts)
    dtype = parts[0].dtype
    check_numbers(dtype, "reduce")
    if accumulate is not None:
        total = there(place_of(parts[0]), accumulate, list(parts))
    elif len(parts) == 1:
        total = parts[0]
    else:
        total = wide_sum(parts)
    return finished(op, total, len(parts), dtype)


def finished(op: ReduceOp, total: Any, count: int, dtype: np.dtype[Any]) -> Any:
    """Return the result, from the sum of `count` arrays of `dtype`."""
    if op is ReduceOp.SUM:
        return cast(total, dtype)
    return there(place_of(total), _divided, total, count, mean_dtype(dtype))


def _divided(total: Any, count: int, dtype: np.dtype[Any]) -> Any:
    if count > 1:
        total = np.true_divide(total, count, dtype=sum_dtype(dtype))
    return total.astype(dtype, copy=False)


def wide_sum(parts: Sequence[Any]) -> Any:
    """Return the sum of arrays, of 16-bit floats in float32."""
    wide = sum_dtype(parts[0].dtype)
    if len(parts) == 1:
        return cast(parts[0], wide)
    return there(place_of(parts[0]), _added, together(parts), wide)


def _added(parts: Sequence[Any], wide: np.dtype[Any]) -> Any:
    total = np.add(parts[0], parts[1], dtype=wide)
    for part in parts[2:]:
        if isinstance(total, np.generic):
            total = np.add(total, part, dtype=wide)
        else:
            np.add(total, part, out=total, casting="unsafe")
    return total


def is_dense(value: Any) -> bool:
    """Return whether a value is an array, and not some rows of one."""
    return isinstance(value, HOST) or (
        hasattr(value, "dtype") and not isinstance(value, IndexedSlices)
    )


def concatenated(parts: Sequence[Any], axis: int) -> Array:
    """Return arrays joined along `axis`."""
    if any(isinstance(part, IndexedSlices) for part in parts):
        raise NotImplementedError("gather of IndexedSlices is not supported")
    check_dtypes(parts)
    joining: Callable[..., Array] = np.concatenate
    return there(place_of(parts[0]), joining, together(parts), axis)


def check_axis(parts: Sequence[Any], axis: int) -> None:
    """Raise for what cannot be gathered along `axis`, which counts from the front."""
    for part in parts:
        if isinstance(part, IndexedSlices):
            raise NotImplementedError("gather of IndexedSlices is not supported")
        check_numbers(part.dtype, "gather")
        if not 0 <= axis < part.ndim:
            raise ValueError(
                f"axis is {axis}; wanted 0 or more and less than the {part.ndim} "
                "dimension(s) of the array"
            )


def check_numbers(dtype: np.dtype[Any], doing: str) -> None:
    """Raise `ElementTypeError` unless arrays of `dtype` hold numbers."""
    if dtype.kind not in "iufcV" or dtype.type is np.void:  # V: bfloat16 and its kin
        raise ElementTypeError(f"{doing} of dtype {dtype}; wanted numbers")


def check_dtypes(parts: Sequence[Any]) -> None:
    """Raise `StructureError` unless all arrays have one dtype."""
    dtypes = [str(part.dtype) for part in parts]
    if len(set(dtypes)) > 1:
        raise StructureError(f"the local replicas' dtypes are {dtypes}; wanted one")


def check_alike(parts: Sequence[Any]) -> None:
    """Raise `StructureError` unless all arrays have one shape and one dtype."""
    first = parts[0]
    for index, part in enumerate(parts):
        if part.shape != first.shape or part.dtype != first.dtype:
            raise StructureError(
                f"local replica 0 has {first.dtype} of shape {first.shape}, replica "
                f"{index} has {part.dtype} of shape {part.shape}; wanted them alike"
            )


def _reduced_slices(op: ReduceOp, parts: Sequence[Any]) -> IndexedSlices:
    if not all(isinstance(part, IndexedSlices) for part in parts):
        kinds = [type(part).__name__ for part in parts]
        raise StructureError(f"the replicas have {kinds}; wanted IndexedSlices of all")
    total = joined(parts)
    return total if op is ReduceOp.SUM else total.divided_by(len(parts))


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to add arrays of `dtype` in: float32 for 16-bit floats.

    It has the byte order of this machine, which is all that NumPy adds in.
    """
    narrow = dtype.itemsize == 2 and dtype.kind in "fV"
    return np.dtype(np.float32) if narrow else dtype.newbyteorder("=")
