"""Loops over narrow floats as machine code; imported only where numba is wanted.

float16 is converted by the processor, eight numbers at a time; where it cannot do that
there are no loops for float16. Its conversions make a signalling NaN quiet, which NumPy
does when it calculates with one. bfloat16 is the upper half of a float32.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba.extending import intrinsic

u32, f32 = np.uint32, np.float32
HALF, SINGLE, BITS = ir.HalfType(), ir.FloatType(), ir.IntType(16)

Loop = Callable[..., None]


def has_half() -> bool:
    """Tell whether the processor converts float16."""
    features = binding.get_host_cpu_features()
    return bool(features.get("f16c")) or platform.machine() == "aarch64"


def _single_of_half(context: Any, bits: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], HALF), SINGLE)

    return numba.float32(numba.uint16), code


def _half_of_single(context: Any, number: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], HALF), BITS)

    return numba.uint16(numba.float32), code


@numba.njit(numba.float32(numba.uint16), nogil=True)
def _single_of_bfloat(bits: Any) -> Any:
    return u32(u32(bits) << u32(16)).view(f32)


@numba.njit(numba.uint16(numba.float32), nogil=True)
def _bfloat_of_single(number: Any) -> Any:
    # To even: what is lost is rounded up if that, or the last bit kept, is odd. All
    # cases are computed and one is picked, so that many numbers go through at once.
    single = f32(number).view(u32)
    odd = u32(single >> u32(16)) & u32(1)
    result = u32(u32(single + u32(0x7FFF) + odd) >> u32(16))
    if u32(single & u32(0x7FFFFFFF)) > u32(0x7F800000):  # NaN: there is only one
        result = u32(0x7FC0) | u32(u32(single >> u32(16)) & u32(0x8000))
    return np.uint16(result)


def loops_for(dtype: str) -> dict[str, Loop]:
    """Return the compiled loops for `float16` or `bfloat16`; none if there are none.

    `widen(bits, out)`, `narrow(numbers, out)`, `add(bits, bits, out)` and
    `add_to(total, bits)`: flat arrays of 16-bit patterns, and of float32.
    """
    if dtype == "float16" and not has_half():
        return {}
    single_of: Any = _single_of_bfloat
    of_single: Any = _bfloat_of_single
    if dtype == "float16":
        single_of, of_single = intrinsic(_single_of_half), intrinsic(_half_of_single)

    def widen(bits: Any, out: Any) -> None:
        for i in range(bits.size):
            out[i] = single_of(bits[i])

    def narrow(numbers: Any, out: Any) -> None:
        for i in range(numbers.size):
            out[i] = of_single(numbers[i])

    def add(a: Any, b: Any, out: Any) -> None:
        for i in range(a.size):
            out[i] = of_single(single_of(a[i]) + single_of(b[i]))

    def add_to(total: Any, bits: Any) -> None:
        for i in range(bits.size):
            total[i] += single_of(bits[i])

    given_16, made_16 = _given(numba.uint16), numba.uint16[::1]
    given_32, made_32 = _given(numba.float32), numba.float32[::1]
    return {
        "widen": _compiled(widen, given_16, made_32),
        "narrow": _compiled(narrow, given_32, made_16),
        "add": _compiled(add, given_16, given_16, made_16),
        "add_to": _compiled(add_to, made_32, given_16),
    }


def _given(kind: Any) -> Any:
    """Return the type of an array to be read: one that may be written to will do."""
    return numba.types.Array(kind, 1, "C", readonly=True)


def _compiled(loop: Loop, *types: Any) -> Loop:
    compiled: Loop = numba.njit(numba.void(*types), nogil=True)(loop)
    return compiled
