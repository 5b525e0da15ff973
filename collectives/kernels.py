"""Elementwise reduction: which op works on which dtype, and in what arithmetic.

Rules, the same for every algorithm:

* 16-bit and 8-bit floats are converted to float32, reduced there, and rounded once.
* `mean` divides once, after everything has been added up.
* `mean` of integers is float64: they are converted first, as `numpy.mean` does.
* bool knows `and or xor min max`; sum, mean and prod of bool are refused, because
  everybody expects something else from them.
* `min` and `max` hand NaN on, as NumPy does. Complex numbers have no order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from collectives.errors import InvalidArgumentError, UnsupportedError

Array = np.ndarray[Any, np.dtype[Any]]


class ReduceOp(str, Enum):
    """The reductions; wherever an op is wanted, the plain string does as well."""

    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    PROD = "prod"
    AND = "and"
    OR = "or"
    XOR = "xor"


OPS: tuple[str, ...] = tuple(op.value for op in ReduceOp)

UFUNCS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "mean": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "prod": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}

# dtype kind -> ops. Kind "e" stands for the narrow floats (float16, bfloat16, float8).
ARITHMETIC = {"sum", "mean", "prod"}
ORDER = {"min", "max"}
LOGIC = {"and", "or", "xor"}
OPS_OF_KIND: dict[str, set[str]] = {
    "b": ORDER | LOGIC,
    "i": ARITHMETIC | ORDER | LOGIC,
    "u": ARITHMETIC | ORDER | LOGIC,
    "e": ARITHMETIC | ORDER,
    "f": ARITHMETIC | ORDER,
    "c": ARITHMETIC,
}
NARROW_FLOATS = ("float16", "bfloat16", "float8_")


@dataclass(frozen=True)
class Kernel:
    """How arrays of one dtype are reduced by one op."""

    op: str
    kind: str
    combine: Callable[..., Any]
    """`combine(a, b, out)`, elementwise, in `work_dtype`."""
    work_dtype: np.dtype[Any]
    """What travels and is added up."""
    result_dtype: np.dtype[Any]
    """What the caller gets."""

    def finish(self, reduced: Array, ranks: int) -> None:
        """Turn what has been combined over all ranks into the result, in place."""
        if self.op == "mean" and ranks > 1:
            np.true_divide(reduced, ranks, out=reduced)


@lru_cache(maxsize=256)
def kind_of(dtype: np.dtype[Any]) -> str:
    """Return `b i u f c` as NumPy does, `e` for narrow floats, `` for anything else."""
    if dtype.name.startswith(NARROW_FLOATS):
        return "e"
    return dtype.kind if dtype.kind in "biufc" else ""


def check_op(op: str | ReduceOp) -> str:
    """Return the op's name.

    Raises:
        InvalidArgumentError: there is no such op.
    """
    name = op.value if isinstance(op, ReduceOp) else op
    if not isinstance(name, str) or name.lower() not in OPS:
        raise InvalidArgumentError(f"unknown op {op!r}; known: {' '.join(OPS)}")
    return name.lower()


def kernel_for(op: str | ReduceOp, dtype: np.dtype[Any]) -> Kernel:
    """Return the kernel for an op and the caller's dtype (in native byte order).

    Raises:
        InvalidArgumentError: there is no such op.
        UnsupportedError: the op makes no sense for the dtype.
    """
    name = check_op(op)
    kind = kind_of(dtype)
    if name not in OPS_OF_KIND.get(kind, set()):
        possible = " ".join(op for op in OPS if op in OPS_OF_KIND.get(kind, set()))
        raise UnsupportedError(
            f"op {name} of dtype {dtype}; that dtype has: {possible or 'no reduction'}"
        )
    work = result = dtype
    if kind == "e" and name in ARITHMETIC:
        work = np.dtype(np.float32)
    elif kind in "iu" and name == "mean":
        work = result = np.dtype(np.float64)
    return Kernel(name, kind, UFUNCS[name], work, result)
