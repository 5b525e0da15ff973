"""In what form NCCL reduces elements so that the result keeps the rules of `kernels`.

NCCL adds, multiplies and compares numbers of 8, 32 and 64 bits and three kinds of
floats. It does not say what becomes of NaN in min and max, knows no bool, no integers
of 16 bits, no complex numbers. What follows makes them exact in what it has:

* floats in min and max as integers in the same order, with NaN at the end that wins;
* bool as 0 and 1; integers of 16 bits as those of 32;
* sums of complex numbers as those of twice as many reals.

Elements are only looked at as bits, so that a dtype which CuPy does not know
(bfloat16) is as good as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from collectives.kernels import Kernel

Encode = Callable[[Any], Any]
Decode = Callable[[Any, Any], None]

REDUCIBLE = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float32",
    "float64",
)
OPS = {"sum": "sum", "mean": "sum", "prod": "prod", "min": "min", "max": "max"}
BOOL_OPS = {"and": "min", "min": "min", "or": "max", "max": "max"}
INFINITY = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float64": 0x7FF0000000000000,
}
"""The bits of infinity; those of NaN without its sign are greater."""
COMPLEX = {"complex64": "float32", "complex128": "float64"}


class Form(NamedTuple):
    """What NCCL gets."""

    dtype: str
    op: str
    encode: Encode | None = None
    """Returns a new array of `dtype`; without it the memory is seen as `dtype`."""
    same: bool = False
    """Whether the elements are of `dtype` as they are."""
    decode: Decode | None = None
    """`decode(reduced, out)` puts what NCCL has reduced into an array as it was."""

    def codes(self, library: Any) -> tuple[int, int]:
        """Return NCCL's numbers for dtype and op."""
        kind = getattr(library, f"NCCL_{self.dtype.upper()}")
        return kind, getattr(library, f"NCCL_{self.op.upper()}")

    def sides(self, source: Any, work: Any) -> tuple[Any, Any]:
        """Return what NCCL reads and where it writes; perhaps the same memory."""
        if self.same:
            return source, work
        if self.encode is None:
            return source.view(self.dtype), work.view(self.dtype)
        sent = self.encode(source)
        return sent, sent

    def numbers(self, array: Any) -> int:
        """Return how many of NCCL's numbers are an element of an array."""
        if self.encode is not None:
            return 1
        return int(array.itemsize) // np.dtype(self.dtype).itemsize


@lru_cache(maxsize=256)
def form_of(kernel: Kernel) -> Form | None:
    """Return the form in which NCCL does what a kernel does; None: it cannot."""
    dtype, op = kernel.work_dtype, OPS.get(kernel.op, "")
    name = dtype.name
    if kernel.kind == "b":
        if kernel.op == "xor":  # of numbers that are 0 or 1
            return Form("uint8", "sum", decode=_parity)
        return Form("uint8", BOOL_OPS[kernel.op]) if kernel.op in BOOL_OPS else None
    if not op:
        return None
    if op in ("min", "max") and name in INFINITY:
        wide = f"int{max(32, 8 * dtype.itemsize)}"
        return Form(
            wide, op, partial(_ranked, INFINITY[name], op, wide), decode=_unranked
        )
    if name in REDUCIBLE:
        return Form(name, op, same=True)
    if name in COMPLEX and op == "sum":
        return Form(COMPLEX[name], op)
    if name in ("int16", "uint16"):
        # Modulo 2^16 the sign makes no difference to sums and products.
        narrow = name if op in ("min", "max") else "uint16"
        wide = narrow.replace("16", "32")
        return Form(wide, op, partial(_widened, narrow, wide), decode=_narrowed)
    return None


def _parity(reduced: Any, out: Any) -> None:
    np.bitwise_and(reduced, np.uint8(1), out=out.view(np.uint8))


def _widened(narrow: str, wide: str, array: Any) -> Any:
    return array.view(narrow).astype(wide)


def _narrowed(reduced: Any, out: Any) -> None:
    bits = reduced.view(np.uint32).astype(np.uint16)  # unsigned: the low bits, always
    out.view(np.uint16)[...] = bits


def _ranked(infinity: int, op: str, wide: str, array: Any) -> Any:
    """Return integers in the order of the floats, -0 below +0, NaN where it wins.

    For floats of one sign the order of bits as integers is theirs, or the reverse.
    """
    bits = array.view(f"int{8 * array.itemsize}")
    number = bits.dtype.type
    magnitude = number(np.iinfo(number).max)
    ranks = bits ^ ((bits >> number(8 * array.itemsize - 1)) & magnitude)
    quiet = infinity | infinity >> 1 & ~infinity  # the bit below those of infinity
    nan = quiet if op == "max" else -quiet - 1
    ranks = np.where((bits & magnitude) > number(infinity), number(nan), ranks)
    return ranks.astype(wide, copy=False)


def _unranked(reduced: Any, out: Any) -> None:
    bits = out.view(f"int{8 * out.itemsize}")
    number = bits.dtype.type
    ranks = reduced.astype(number, copy=False)
    magnitude = number(np.iinfo(number).max)
    bits[...] = ranks ^ ((ranks >> number(8 * out.itemsize - 1)) & magnitude)
