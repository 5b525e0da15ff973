"""Narrow floats to float32 and back: NumPy's casts, or compiled ones where they pay.

NumPy casts float16 one element at a time, some ten times slower than memory is read.
Where numba (the extra `fast`) is installed, the loops below do it instead, with the
same bits, those of NaN included. To import it and to compile takes a second or two,
which is spent only once casts of large arrays have taken a good part of that.

What is too large for the narrow type becomes inf, without a warning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from collectives.kernels import Array

LARGE = 1 << 16  # elements; the casts of smaller arrays are left to NumPy
COMPILE_AFTER = 1 << 26  # elements in large casts: 0.2 s of NumPy's time

Loop = Callable[[Array, Array], None]
"""Converts the bits of one flat array into those of another."""

_one_at_a_time = threading.Lock()
_elements_cast = 0


def widen(array: Array, out: Array | None = None) -> Array:
    """Return the elements, in C order, as a flat array of float32: `out`, or a new one.

    Args:
        array: of any layout.
        out: flat float32 of that many elements; memory that is used again and again
            stays in the cache.
    """
    wide = np.empty(array.size, np.float32) if out is None else out
    loop = _compiled_loop(array.dtype, wide.dtype, array.size)
    if loop is None:
        with np.errstate(all="ignore"):
            wide.reshape(array.shape)[...] = array
    else:
        flat = np.require(array, requirements=("C", "A")).reshape(-1)
        loop(flat.view(np.uint16), wide.view(np.uint32))
    return wide


def narrow_into(flat: Array, out: Array) -> None:
    """Put the elements of a flat array into `out`, in C order, rounded to its dtype.

    Args:
        flat: float32 for a narrow float; anything else goes its usual way in NumPy.
        out: of any layout; nothing beside it is touched.
    """
    loop = _compiled_loop(flat.dtype, out.dtype, out.size)
    if loop is None:
        with np.errstate(all="ignore"):
            out[...] = flat.reshape(out.shape)
        return
    direct = out.flags.c_contiguous and out.flags.aligned
    target = out.reshape(-1) if direct else np.empty(out.size, out.dtype)
    loop(flat.view(np.uint32), target.view(np.uint16))
    if not direct:
        out[...] = target.reshape(out.shape)


def _compiled_loop(
    source: np.dtype[Any], target: np.dtype[Any], elements: int
) -> Loop | None:
    """Return what to cast with; None where that is NumPy."""
    global _elements_cast
    pair = _pair(source, target)
    if elements < LARGE or pair is None:
        return None
    _elements_cast += elements
    if _elements_cast < COMPILE_AFTER:
        return None
    with _one_at_a_time:  # two threads must not compile the same
        return _compile(*pair)


@cache
def _pair(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[str, str] | None:
    """Return the names of two dtypes, which NumPy makes anew each time it is asked."""
    pair = source.name, target.name
    return pair if pair in LOOPS else None


@cache
def _compile(source: str, target: str) -> Loop | None:
    """Return a loop as machine code; None where there is no numba that works."""
    try:
        import numba
    except Exception:  # not there, or not for this NumPy
        return None
    loop = LOOPS[source, target]
    wide, narrow = numba.uint32, numba.uint16
    given, made = (wide, narrow) if source == "float32" else (narrow, wide)
    # One version for all callers: what may be written into is also good to be read.
    signature = numba.void(numba.types.Array(given, 1, "C", readonly=True), made[::1])
    try:
        compiled: Loop = numba.njit(signature, nogil=True, cache=True)(loop)
    except RuntimeError:  # there is no folder to keep it in for the next time
        compiled = numba.njit(signature, nogil=True)(loop)
    return compiled


# --- the loops ------------------------------------------------------------------------
#
# Each computes all cases and picks one, without a branch, so that the compiler can
# treat many elements at once. u32 is written wherever numba would go on in 64 bits.
#
#            sign  exponent  fraction  bias
# float16      1       5        10       15
# bfloat16     1       8         7      127    the upper half of a float32
# float32      1       8        23      127

u32, f32 = np.uint32, np.float32


def _float16_to_float32(bits: Array, out: Array) -> None:
    for i in range(bits.size):
        half = u32(bits[i])
        sign = u32((half & u32(0x8000)) << u32(16))
        rest = u32((half & u32(0x7FFF)) << u32(13))
        result = u32(rest + u32(112 << 23))
        if rest >= u32(
            0x1F << 23
        ):  # inf and NaN: from the one top exponent to the other
            result = u32(rest + u32(224 << 23))
        if rest < u32(
            1 << 23
        ):  # 0 and subnormal: as a fraction above 2**-14, minus that
            above = u32(rest + u32(113 << 23)).view(f32)
            result = f32(above - f32(2.0**-14)).view(u32)
        out[i] = sign | result


def _float32_to_float16(bits: Array, out: Array) -> None:
    for i in range(bits.size):
        single = u32(bits[i])
        sign = u32(single >> u32(16)) & u32(0x8000)
        rest = u32(single & u32(0x7FFFFFFF))
        # To even: what is lost is rounded up if that, or the last bit kept, is odd.
        odd = u32(rest >> u32(13)) & u32(1)
        result = u32(u32(rest + u32(0xFFF) + odd - u32(112 << 23)) >> u32(13))
        if rest < u32(113 << 23):  # subnormal: next to 0.5 its last bit is that of 0.5
            result = u32(f32(rest.view(f32) + f32(0.5)).view(u32) - u32(126 << 23))
        if rest >= u32(143 << 23):  # 2**16 and above
            result = u32(0x7C00)
        if rest > u32(0x7F800000):  # NaN, with the payload that there is room for
            result = u32(0x7C00) | u32((rest & u32(0x7FFFFF)) >> u32(13))
            result = u32(result + u32(result == u32(0x7C00)))
        out[i] = sign | result


def _float32_to_bfloat16(bits: Array, out: Array) -> None:
    for i in range(bits.size):
        single = u32(bits[i])
        odd = u32(single >> u32(16)) & u32(1)
        result = u32(u32(single + u32(0x7FFF) + odd) >> u32(16))
        if u32(single & u32(0x7FFFFFFF)) > u32(0x7F800000):  # NaN: there is only one
            result = u32(0x7FC0) | u32(u32(single >> u32(16)) & u32(0x8000))
        out[i] = result


# The fourth, bfloat16 to float32, is as fast in ml_dtypes as memory can be read.
LOOPS: dict[tuple[str, str], Loop] = {
    ("float16", "float32"): _float16_to_float32,
    ("float32", "float16"): _float32_to_float16,
    ("float32", "bfloat16"): _float32_to_bfloat16,
}
