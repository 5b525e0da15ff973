"""Narrow floats to float32 and back: NumPy's casts, or compiled ones where they pay.

NumPy converts float16 one element at a time, some ten times slower than memory is
read. Where numba (the extra `fast`) is installed, the loops below do it, bit for bit
the same, NaN payloads included. Importing and compiling takes about a second, so that
happens only once casts of large arrays have cost a good part of that.

What is too large for the narrow type becomes inf, without a warning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from collectives.kernels import Array

LARGE = 1 << 16  # elements; smaller casts never lead to an import of numba
COMPILE_AFTER = 1 << 26  # elements of large casts, about 0.2 s of NumPy's time

Cast = Callable[[Array, Array], None]
"""From the bits of flat arrays of one type into those of another."""

_waiting = threading.Lock()
_cast_so_far = 0


def widen(array: Array) -> Array:
    """Return the elements in C order as a new, flat array of float32."""
    wide = np.empty(array.size, np.float32)
    cast = _compiled(_WIDEN, array.dtype, array.size)
    if cast is None:
        wide.reshape(array.shape)[...] = array
    else:
        flat = np.require(array, requirements="CA").reshape(-1)
        cast(flat.view(np.uint16), wide.view(np.uint32))
    return wide


def narrow_into(wide: Array, out: Array) -> None:
    """Round the elements of a flat array to those of `out`, in C order.

    Args:
        wide: float32 where `out` is a narrow float; otherwise anything that NumPy can
            put into `out`.
        out: of any layout; nothing beside it is touched.
    """
    cast = None
    if wide.dtype == np.float32:
        cast = _compiled(_NARROW, out.dtype, out.size)
    if cast is None:
        with np.errstate(over="ignore", invalid="ignore"):
            out[...] = wide.reshape(out.shape)
        return
    direct = out.flags.c_contiguous and out.flags.aligned
    flat = out.reshape(-1) if direct else np.empty(out.size, out.dtype)
    cast(wide.view(np.uint32), flat.view(np.uint16))
    if not direct:
        out[...] = flat.reshape(out.shape)


def _compiled(
    kernels: dict[str, Cast], dtype: np.dtype[Any], elements: int
) -> Cast | None:
    """Return the compiled cast of a type; None where NumPy's is to be used."""
    global _cast_so_far
    kernel = kernels.get(dtype.name)
    if kernel is None or elements < LARGE:
        return None
    _cast_so_far += elements
    return _compile(kernel) if _cast_so_far >= COMPILE_AFTER else None


def _compile(kernel: Cast) -> Cast | None:
    with _waiting:  # `cache` alone would let two threads compile the same
        return _compile_once(kernel)


@cache
def _compile_once(kernel: Cast) -> Cast | None:
    """Return a kernel as machine code; None where there is no working numba."""
    try:
        import numba
    except Exception:  # not there, or not for this NumPy
        return None
    bits = {name: getattr(numba, f"uint{n}") for name, n in _BITS[kernel].items()}
    source = numba.types.Array(bits["source"], 1, "C", readonly=True)
    signature = numba.void(source, bits["target"][::1])
    try:
        return numba.njit(signature, nogil=True, cache=True)(kernel)
    except RuntimeError:  # nowhere to keep it for the next time
        return numba.njit(signature, nogil=True)(kernel)
