"""Reduce a slice of what all ranks have, on the device, by one kernel.

The parts are read as they are, one thread an element, combined from left to right in a
register and rounded once. So each part is read once and each target written once, the
least there is, whatever the number of ranks; and the bits depend on nothing but the
parts and their order.

16-bit floats are widened to float32 on the way. bfloat16 goes by its bits: not every
CuPy knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from collectives.gpu.arrays import cupy
from collectives.kernels import Array, Kernel

MOST_PARTS = 32  # a kernel takes 4 KiB of arguments, an array some 40 bytes of those
BITS = np.dtype(np.uint16)

# How `r`, what there is so far, and `x`, the next part, are combined. As in NumPy, NaN
# is handed on, the first one where there are two.
PLAIN = {
    "sum": "r = r + x;",
    "mean": "r = r + x;",
    "prod": "r = r * x;",
    "min": "r = x < r ? x : r;",
    "max": "r = r < x ? x : r;",
    "and": "r = r & x;",
    "or": "r = r | x;",
    "xor": "r = r ^ x;",
}
WITH_NAN = {
    "min": "r = (r == r) && ((x < r) || (x != x)) ? x : r;",
    "max": "r = (r == r) && ((r < x) || (x != x)) ? x : r;",
}
WIDENED = "__int_as_float((int){} << 16)"
# Rounded to the nearest, of two as near to the even one; NaN stays NaN.
NARROWED = (
    "unsigned int bits = __float_as_uint(r);",
    "unsigned int even = bits + 32767 + ((bits >> 16) & 1);",
    "unsigned int near = r != r ? (bits | 4194304) : even;",
)


def refusal(kernel: Kernel) -> str:
    """Return why this cannot be done in one kernel; empty if it can."""
    if kernel.op not in PLAIN:
        return f"op {kernel.op} has no kernel on a GPU"
    if kernel.kind == "e" and kernel.result_dtype.itemsize == 1:
        return f"dtype {kernel.result_dtype} has no kernel on a GPU"
    return ""


def slice_sum(
    kernel: Kernel,
    dtype: np.dtype[Any],
    parts: Sequence[Array],
    targets: Sequence[Array],
    divisor: int = 1,
) -> None:
    """Put the sum of the parts, from left to right, into all targets.

    Nothing is waited for: it is queued on the current stream.

    Args:
        kernel: how to combine.
        dtype: the elements' dtype: that of the arrays, unless those hold its bits.
        parts: flat device arrays, equally long.
        targets: others, or the very same as one of the parts.
        divisor: of a `mean`, once the sum is complete; 1 while it is not.
    """
    xp = cupy()
    carry: list[Array] = []
    narrow = dtype.itemsize == 2 and kernel.kind == "e"
    divisor = divisor if kernel.op == "mean" else 1
    bits = dtype.name == "bfloat16"
    if bits:
        parts = [part.view(BITS) for part in parts]
        targets = [target.view(BITS) for target in targets]
    kind = "f" if kernel.work_dtype.kind == "f" else kernel.kind

    def made(count: int, last: bool) -> Any:
        name = "bfloat16" if bits else parts[0].dtype.name
        shape = (count, len(targets) if last else 1, bool(carry), last)
        return _made(kernel.op, kind, name, divisor if last else 1, *shape)

    while len(parts) > MOST_PARTS:
        room = xp.empty(parts[0].size, np.float32 if narrow else parts[0].dtype)
        made(MOST_PARTS, last=False)(*carry, *parts[:MOST_PARTS], room)
        carry, parts = [room], parts[MOST_PARTS:]
    targets, others = targets[:MOST_PARTS], targets[MOST_PARTS:]
    made(len(parts), last=True)(*carry, *parts, *targets)
    for other in others:
        other[:] = targets[0]


@cache
def _made(
    op: str,
    kind: str,
    name: str,
    divisor: int,
    parts: int,
    targets: int,
    carried: bool,
    last: bool,
) -> Any:
    """Return the kernel: `(what is carried from before, parts ..., targets ...)`."""
    narrow = name in ("float16", "bfloat16")
    total = "float" if narrow else "T"
    kept = "float32" if narrow else "T"
    bits = name == "bfloat16"
    load = WIDENED if bits else f"({total})" + "{}"
    inputs = ["carry"] * carried + [f"x{number}" for number in range(parts)]
    outputs = [f"y{number}" for number in range(targets)]
    values = [n if n == "carry" else load.format(n) for n in inputs]
    step = WITH_NAN.get(op, PLAIN[op]) if kind in "ef" else PLAIN[op]
    if kind == "b":  # arithmetic on bool would go by int
        step = PLAIN[{"min": "and", "max": "or"}.get(op, op)]
    lines = [f"{total} r = {values[0]};", f"{total} x = r;"]
    lines += [f"x = {value}; {step}" for value in values[1:]]
    if divisor > 1:
        real = "double" if name in ("float64", "complex128") else "float"
        lines.append(f"r = r / ({real}){divisor};")
    if bits and last:
        lines += NARROWED
    stored = ("(T)(near >> 16)" if bits else "(T)r") if last else "r"
    lines += [f"{target} = {stored};" for target in outputs]
    declared = [f"T {name}" if name != "carry" else f"{kept} carry" for name in inputs]
    returned = [f"{'T' if last else kept} {target}" for target in outputs]
    return cupy().ElementwiseKernel(
        ", ".join(declared),
        ", ".join(returned),
        "\n".join(lines),
        f"ringfold_{op}_{name}_{parts}",
        no_return=True,
    )
