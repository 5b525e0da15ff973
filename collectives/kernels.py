"""Elementwise reduction: which op works on which dtype, and in what arithmetic.

Rules, the same for every algorithm:

* 16-bit and 8-bit floats are converted to float32, reduced there, and rounded once.
* `mean` divides once, after everything has been added up.
* `mean` of integers is float64: they are converted first, as `numpy.mean` does.
* bool knows `and or xor min max`; sum, mean and prod of bool are refused, because
  everybody expects something else from them.
* `min` and `max` hand NaN on, as NumPy does. Complex numbers have no order.
* `argmin` and `argmax` work on pairs, a structured dtype of a number and an index; of
  equal numbers the lower index wins.
* A function of two arrays is used as it is, strictly in the order of ranks. It has to
  be associative, and the same on every rank.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from collectives.errors import InvalidArgumentError, UnsupportedError

Array = np.ndarray[Any, np.dtype[Any]]


class _Quiet(threading.local):
    """A context of each thread in which NumPy neither warns nor raises.

    What a rank has told NumPy to raise must not set it apart from the others. To go
    into a context that is at hand takes a tenth of the time of `numpy.errstate`.
    """

    def __init__(self) -> None:
        context, before = copy_context(), np.geterr()
        context.run(np.seterr, all="ignore")
        self.run: Callable[..., Any] = context.run
        if np.geterr() != before:  # this NumPy keeps it elsewhere
            np.seterr(**before)
            self.run = np.errstate(all="ignore")(lambda f, *a, **k: f(*a, **k))


quiet = _Quiet()
"""`quiet.run(function, ...)` calls a NumPy function."""


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
    ARGMIN = "argmin"
    ARGMAX = "argmax"


OPS: tuple[str, ...] = tuple(op.value for op in ReduceOp)

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
    "p": {"argmin", "argmax"},
}
NARROW_FLOATS = ("float16", "bfloat16", "float8_")


Op = str | ReduceOp | Callable[[Any, Any], Any]
"""The name of an op, or a function of two arrays that returns a third."""

CALLABLE = "callable"
PAIR_KINDS = [[number, index] for number in "iuf" for index in "iu"]


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

    @property
    def in_order(self) -> bool:
        """Whether the ranks must be combined in order: we do not know a caller's op."""
        return self.op.startswith(CALLABLE)

    def add_up(self, parts: Sequence[Array], total: Array, divisor: int) -> None:
        """Put the result of two or more parts, in this order, into `total`.

        The parts are of `work_dtype`, and `total` is none of them but perhaps the first
        or the second.
        """
        run, combine = quiet.run, self.combine
        run(combine, parts[0], parts[1], out=total)
        for part in parts[2:]:
            run(combine, total, part, out=total)
        self.finish(total, divisor)

    def finish(self, reduced: Array, divisor: int) -> None:
        """Turn what has been combined over all ranks into the result, in place."""
        if self.op == "mean" and divisor > 1:
            quiet.run(np.true_divide, reduced, divisor, out=reduced)


@lru_cache(maxsize=256)
def kind_of(dtype: np.dtype[Any]) -> str:
    """Return `b i u f c` as NumPy does, `e` for narrow floats, `p` for pairs.

    A pair has two fields, a real number and an integer, in this order. Anything else is
    an empty string.
    """
    if dtype.fields is not None:
        kinds = [kind_of(field) for field, *_ in dtype.fields.values()]
        return "p" if kinds in PAIR_KINDS else ""
    if dtype.name.startswith(NARROW_FLOATS):
        return "e"
    return dtype.kind if dtype.kind in "biufc" else ""


def check_op(op: Op) -> str:
    """Return the op's name.

    Raises:
        InvalidArgumentError: there is no such op.
    """
    if callable(op) and not isinstance(op, (str, ReduceOp)):
        return f"{CALLABLE} {getattr(op, '__qualname__', type(op).__name__)}"
    name = op.value if isinstance(op, ReduceOp) else op
    if not isinstance(name, str) or name.lower() not in OPS:
        raise InvalidArgumentError(
            f"unknown op {op!r}; known: {' '.join(OPS)}, or a function of two arrays"
        )
    return name.lower()


def kernel_for(op: Op, dtype: np.dtype[Any]) -> Kernel:
    """Return the kernel for an op and the caller's dtype (in native byte order).

    Raises:
        InvalidArgumentError: there is no such op.
        UnsupportedError: the op makes no sense for the dtype.
    """
    name, kind = check_op(op), kind_of(dtype)
    if name not in OPS and callable(op):
        return Kernel(name, kind, Calling(op), dtype, dtype)
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


def identity(kernel: Kernel) -> Any:
    """Return what changes nothing when it is combined, as a value of `work_dtype`.

    Raises:
        UnsupportedError: there is none for the op.
    """
    dtype, op = kernel.work_dtype, kernel.op
    if op in ("min", "max") and kernel.kind in "fe":
        value = dtype.type(np.inf if op == "min" else -np.inf)
        return value if np.isinf(value) else _farthest(dtype, op)
    if op in ("min", "max", "and") and kernel.kind in "biu":
        whole = np.iinfo(dtype) if kernel.kind in "iu" else None
        low, high = (whole.min, whole.max) if whole else (False, True)
        all_ones = -1 if kernel.kind == "i" else high
        return dtype.type({"min": high, "max": low, "and": all_ones}[op])
    if op in IDENTITIES:
        return dtype.type(IDENTITIES[op])
    raise UnsupportedError(f"op {op} has no identity")


def _farthest(dtype: np.dtype[Any], op: str) -> Any:
    """Return the largest number of an 8-bit float without infinity, or the smallest."""
    numbers = np.arange(256, dtype=np.uint8).view(dtype)
    finite = numbers[np.isfinite(numbers.astype(np.float32))].astype(np.float32)
    return (finite.max() if op == "min" else finite.min()).astype(dtype)


class Calling:
    """A caller's function of two arrays, as a `combine`.

    What goes wrong in it is kept instead of raised: the other ranks are in the middle
    of the call. They hear of it at the end; see `plans.Planner.move_flat`.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        """Call `function(a, b)` with arrays that it cannot write into."""
        self._function = function
        self.error = ""

    def __call__(self, a: Array, b: Array, out: Array) -> None:
        """Put the function's result into `out`."""
        try:
            result = np.asarray(self._function(_read_only(a), _read_only(b)))
            if result.shape != out.shape:
                raise ValueError(f"it returned shape {result.shape}, not {out.shape}")
            np.copyto(out, result, casting="same_kind")
        except Exception as error:
            self.error = self.error or f"{type(error).__name__}: {error}"


def _read_only(array: Array) -> Array:
    view: Array = array.view()
    view.flags.writeable = False
    return view


def _smaller(a: Array, b: Array, out: Array) -> None:
    _choose_pairs(np.less, a, b, out)


def _larger(a: Array, b: Array, out: Array) -> None:
    _choose_pairs(np.greater, a, b, out)


def _choose_pairs(before: Callable[..., Any], a: Array, b: Array, out: Array) -> None:
    """Take, of each two pairs, the one whose number comes first; of equals the lower.

    NaN comes before everything, as in `numpy.argmin`.
    """
    number, index = a.dtype.names or ("", "")
    x, y = a[number], b[number]
    x_nan, y_nan = x != x, y != y
    same = (x == y) | (x_nan & y_nan)
    take_b = before(y, x) & ~x_nan | (y_nan & ~x_nan) | (same & (b[index] < a[index]))
    out[...] = np.where(take_b, b, a)


UFUNCS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "mean": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "prod": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "argmin": _smaller,
    "argmax": _larger,
}
IDENTITIES = {"sum": 0, "mean": 0, "prod": 1, "or": 0, "xor": 0}
