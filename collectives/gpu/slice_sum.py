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
    "min": "r = r == r && (x < r || x != x) ? x : r;",
    "max": "r = r == r && (r < x || x != x) ? x : r;",
}
BFLOAT16 = """
__device__ float widened(unsigned short bits) {
    return __int_as_float((int)bits << 16);
}
__device__ unsigned short narrowed(float value) {
    unsigned int bits = (unsigned int)__float_as_int(value);
    if (value != value) return (unsigned short)(bits >> 16 | 0x40);
    return (unsigned short)(bits + 0x7fff + (bits >> 16 & 1) >> 16);
}
"""


def refusal(kernel: Kernel, dtype: np.dtype[Any]) -> str:
    """Return why this cannot be done in one kernel; empty if it can."""
    if kernel.op not in PLAIN:
        return f"op {kernel.op} is not made on a GPU"
    if kernel.kind == "e" and dtype.itemsize == 1:
        return f"dtype {dtype} is not added up on a GPU"
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
        targets: at most 32 others, or the very same as one of the parts.
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
    made(len(parts), last=True)(*carry, *parts, *targets)


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
    element = "uint16" if name == "bfloat16" else name
    narrow = name in ("float16", "bfloat16")
    total = "float" if narrow else "T"
    kept = "float32" if narrow else "T"
    load = "widened({})" if name == "bfloat16" else f"({total})" + "{}"
    store = "narrowed(r)" if name == "bfloat16" else "(T)r"
    inputs = ["carry"] * carried + [f"x{number}" for number in range(parts)]
    outputs = [f"y{number}" for number in range(targets)]
    values = [n if n == "carry" else load.format(n) for n in inputs]
    step = WITH_NAN.get(op, PLAIN[op]) if kind in "ef" else PLAIN[op]
    if kind == "b":  # arithmetic on bool would go by int
        step = PLAIN[{"min": "and", "max": "or"}.get(op, op)]
    lines = [f"{total} r = {values[0]}, x = r;"]
    lines += [f"x = {value}; {step}" for value in values[1:]]
    if divisor > 1:
        real = "double" if name in ("float64", "complex128") else "float"
        lines.append(f"r = r / ({real}){divisor};")
    lines += [f"{target} = {store if last else 'r'};" for target in outputs]
    declared = [f"T {name}" if name != "carry" else f"{kept} carry" for name in inputs]
    returned = [f"{'T' if last else kept} {target}" for target in outputs]
    return cupy().ElementwiseKernel(
        ", ".join(declared),
        ", ".join(returned),
        "\n".join(lines),
        f"ringfold_{op}_{element}_{parts}",
        preamble=BFLOAT16 if name == "bfloat16" else "",
        no_return=True,
    )
