"""What callers pass as arrays, and flat views of it that can be moved.

Results are computed in a flat, contiguous *work* array. Where the caller's `out` is
such an array already it is worked in directly; any other layout is packed before and
unpacked after, so that results always land in the caller's memory and nothing beside
it is touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.gpu.arrays import on_device, on_one_line
from collectives.kernels import Array, kind_of
from collectives.narrow import widen


def as_array(value: Any) -> Array:
    """Return the caller's argument as a NumPy array of a numeric dtype, native order.

    Arrays, buffers, and anything with `__array_interface__` or host DLPack are viewed,
    not copied; lists and Python numbers are converted; byte-swapped arrays are copied.

    Raises:
        UnsupportedError: a device array, or a dtype that is not numeric.
    """
    array = _view_of(value)
    if array is None:
        array = np.asarray(value)
    dtype = array.dtype
    if not kind_of(dtype):
        raise UnsupportedError(
            f"dtype {dtype}; wanted bool, integer, float or complex numbers"
        )
    if dtype.char in "qQ":  # another name of int64, which MPI and `==` tell apart
        return array.view(np.dtype(f"{dtype.byteorder}{dtype.kind}8"))
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def _view_of(value: Any) -> Array | None:
    """Return a NumPy view of the memory behind `value`; None where there is none."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedError("a masked array; wanted one whose elements all count")
    if isinstance(value, np.generic):
        return None  # a number; the memory behind it is not the caller's to write
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if on_device(value):
        raise UnsupportedError(
            f"{type(value).__name__} lies on a GPU, among arrays on the host, or in a "
            "call that has no way for it: pass a copy on the host"
        )
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        return None


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return `out` as an array, after making sure that the result fits into it.

    Raises:
        InvalidArgumentError: wrong shape, wrong dtype, or read-only.
        UnsupportedError: not memory that can be written into.
    """
    array = _view_of(out)
    if array is None:
        raise UnsupportedError(
            f"out is a {type(out).__name__}; wanted an array that can be written into"
        )
    if array.shape != shape:
        raise InvalidArgumentError(f"out has shape {array.shape}; wanted {shape}")
    if array.dtype != dtype:
        raise InvalidArgumentError(f"out has dtype {array.dtype}; wanted {dtype}")
    if not array.flags.writeable:
        raise InvalidArgumentError("out is read-only; wanted a writeable array")
    return array


def flat_source(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements in C order, contiguous and aligned, as `dtype`.

    A view where possible.
    """
    if not isinstance(array, np.ndarray):
        return on_one_line(array, dtype)
    flags = array.flags
    if array.ndim == 1 and flags.forc and flags.aligned and array.dtype == dtype:
        return array
    if dtype == np.float32 and kind_of(array.dtype) == "e":
        return widen(array)
    return np.require(array, dtype, ("C", "A")).reshape(-1)


def flat_work(out: Array, dtype: np.dtype[Any]) -> tuple[Array, bool]:
    """Return the flat array to compute the result in, and whether that is `out`."""
    flags = out.flags
    aligned = not isinstance(out, np.ndarray) or flags.aligned  # a device's always are
    if flags.c_contiguous and aligned and out.dtype == dtype:
        return (out if out.ndim == 1 else out.reshape(-1)), True
    return np.empty(out.size, dtype, like=out), False


def source_beside(array: Array, target: Array, work: Array, direct: bool) -> Array:
    """Return what is given, flat, as `work` has it: that very array, or one apart.

    Args:
        array: the caller's input.
        target: where the caller wants the result.
        work: where the result is computed; in `target` itself if `direct`.
        direct: see `flat_work`.
    """
    if array is target and direct:
        return work
    source = flat_source(array, work.dtype)
    if np.may_share_memory(source, work):
        return work if same_memory(source, work) else source.copy()
    return source


def as_bytes(flat: Array) -> Array:
    """Return a flat array's memory as bytes."""
    return flat.view(np.uint8)


def same_memory(a: Array, b: Array) -> bool:
    """Tell whether two flat arrays are the very same elements."""
    return address(a) == address(b) and a.nbytes == b.nbytes


def address(array: Any) -> int:
    """Return where an array's first element lies, on the host or on a device."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return int(array.data.ptr)


def on_host(array: Any) -> Array:
    """Return an array of the same elements in the memory of the host."""
    return array.get() if on_device(array) else np.asarray(array)


def extent(array: Array) -> tuple[int, int]:
    """Return where an array's memory begins and ends, as addresses."""
    low = high = address(array)
    if array.size == 0:
        return low, low
    for length, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (length - 1) * stride)
        high += max(0, (length - 1) * stride)
    return low, high + array.itemsize
