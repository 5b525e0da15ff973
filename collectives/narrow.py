"""Narrow floats to float32 and back: NumPy's casts, or compiled ones where they pay.

NumPy casts float16 one element at a time, some ten times slower than memory is read.
Where numba (the extra `fast`) is installed, compiled loops do it instead, with the same
bits. To import it and to compile takes a second or two, which is spent only once casts
of large arrays have taken a good part of that.

What is too large for the narrow type becomes inf, without a warning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from collectives.kernels import Array

LARGE = 1 << 14  # elements; the casts of smaller arrays are left to NumPy
COMPILE_AFTER = 1 << 26  # elements in large casts: 0.2 s of NumPy's time
COMPILED = ("float16", "bfloat16")

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
    loop = _loop("widen", array.dtype, array.size)
    if loop is None:
        with np.errstate(all="ignore"):
            wide.reshape(array.shape)[...] = array
    else:
        flat = np.require(array, requirements=("C", "A")).reshape(-1)
        loop(flat.view(np.uint16), wide)
    return wide


def narrow_into(flat: Array, out: Array) -> None:
    """Put the elements of a flat array into `out`, in C order, rounded to its dtype.

    Args:
        flat: float32 for a narrow float; anything else goes its usual way in NumPy.
        out: of any layout; nothing beside it is touched.
    """
    compiled = flat.dtype == np.float32 and isinstance(out, np.ndarray)
    loop = _loop("narrow", out.dtype, out.size) if compiled else None
    if loop is None:
        with np.errstate(all="ignore"):
            out[...] = flat.reshape(out.shape)
        return
    direct = out.flags.c_contiguous and out.flags.aligned
    target = out.reshape(-1) if direct else np.empty(out.size, out.dtype)
    loop(flat, target.view(np.uint16))
    if not direct:
        out[...] = target.reshape(out.shape)


def add_narrow(a: Array, b: Array, out: Array) -> bool:
    """Put the sum of two flat arrays, rounded once, into `out`; tell if that was done.

    It is not where the loop for it is not compiled.
    """
    loop = _loop("add", out.dtype, out.size)
    if loop is None:
        return False
    loop(a.view(np.uint16), b.view(np.uint16), out.view(np.uint16))
    return True


def add_to(total: Array, part: Array, room: Array) -> None:
    """Add a flat array of narrow floats to a float32 one.

    `room` is as much float32 memory, to be overwritten.
    """
    loop = _loop("add_to", part.dtype, part.size)
    if loop is not None:
        loop(total, part.view(np.uint16))
    else:
        np.add(total, widen(part, room), out=total)


def _loop(name: str, dtype: np.dtype[Any], elements: int) -> Callable[..., None] | None:
    """Return the compiled loop of that name; None where NumPy is to do it."""
    global _elements_cast
    if elements < LARGE:
        return None
    narrow = _name(dtype)
    if narrow not in COMPILED:
        return None
    _elements_cast += elements
    if _elements_cast < COMPILE_AFTER:
        return None
    with _one_at_a_time:  # two threads must not compile the same
        return _loops(narrow).get(name)


@cache
def _name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, which NumPy makes anew each time it is asked."""
    return str(dtype.name)


@cache
def _loops(dtype: str) -> dict[str, Callable[..., None]]:
    """Return the compiled loops for a dtype; none without a numba that works."""
    try:
        from collectives.narrow_loops import loops_for
    except Exception:  # not there, or not for this NumPy
        return {}
    return loops_for(dtype)
