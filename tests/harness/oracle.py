"""What collectives must return, computed in NumPy in rank order, by other means."""

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from harness.arrays import KIND_OF, dtype_of

Array = Any

PYTHON = {
    "sum": operator.add,
    "mean": operator.add,
    "prod": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": lambda a, b: _picked(a, b, a < b),
    "max": lambda a, b: _picked(a, b, a > b),
}


def _picked(a: Array, b: Array, first: Array) -> Array:
    """Take `a` where it comes first; where either is NaN, that NaN."""
    return np.where(a != a, a, np.where(b != b, b, np.where(first, a, b)))


def result_dtype(name: str, op: str) -> np.dtype[Any]:
    """Return the dtype of a reduction's result."""
    integer = KIND_OF[name] in ("signed", "unsigned")
    return np.dtype(float) if op == "mean" and integer else dtype_of(name)


def reduced(name: str, op: str, contributions: Sequence[Array]) -> Array:
    """Return the reduction over all ranks: rounded once, `mean` divided at the end."""
    inside = result_dtype(name, op)
    if KIND_OF[name] == "narrow":
        inside = np.dtype(np.float32)
    with np.errstate(all="ignore"):
        # An array plus an array stays an array only from one dimension on.
        parts = [np.atleast_1d(part).astype(inside) for part in contributions]
        total = reduce(PYTHON[op], parts)
        if op == "mean":
            total = total / total.dtype.type(len(parts))
        shape = np.shape(contributions[0])
        return total.astype(result_dtype(name, op)).reshape(shape)
