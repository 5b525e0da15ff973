"""Device arrays as callers pass them, as CuPy arrays of the same memory."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from collectives.errors import InvalidArgumentError, UnsupportedError

HOST = (np.ndarray, np.generic, bool, int, float, complex, str, bytes, type(None))
CUDA, CUDA_MANAGED = 2, 13
"""What DLPack calls memory of a GPU."""
NEEDED = "pip install 'ringfold[cuda12]' or 'ringfold[cuda13]'"


class OnDevice(NamedTuple):
    """A device array: its memory as CuPy sees it, and the dtype of its elements."""

    array: Any
    """A `cupy.ndarray`; of uint16 where CuPy does not know the dtype (bfloat16)."""
    dtype: np.dtype[Any]

    @property
    def known(self) -> bool:
        """Whether CuPy knows the dtype, and so can compute with the elements."""
        return bool(self.array.dtype == self.dtype)


@cache
def cupy() -> Any:
    """Return the module.

    Raises:
        UnsupportedError: it is not installed, or finds no GPU that it can use.
    """
    try:
        import cupy as module
    except ImportError as error:
        raise UnsupportedError(
            f"arrays on a GPU need CuPy ({error}): {NEEDED}"
        ) from None
    try:
        count = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(f"CuPy finds no GPU here: {error}") from None
    if not count:
        raise UnsupportedError("CuPy finds no GPU here")
    return module


@cache
def knows(dtype: np.dtype[Any]) -> bool:
    """Tell whether CuPy can hold elements of a dtype: bfloat16 from version 14 on."""
    try:
        cupy().empty(0, dtype)
    except (TypeError, ValueError):
        return False
    return True


def on_device(value: Any) -> bool:
    """Tell whether a value is an array in the memory of a GPU; imports nothing."""
    if isinstance(value, HOST):
        return False
    device = device_of(value)
    return device >= 0 or (device < -1 and hasattr(value, "__cuda_array_interface__"))


def device_of(value: Any) -> int:
    """Return the GPU's number of what speaks DLPack; -1: on the host, -2: unknown."""
    ask = getattr(type(value), "__dlpack_device__", None)
    if ask is None:
        return -2
    try:
        kind, number = ask(value)
    except Exception:  # an array that cannot be handed out; its own protocol says why
        return -2
    return int(number) if int(kind) in (CUDA, CUDA_MANAGED) else -1


def device_view(value: Any) -> OnDevice:
    """Return a device array as CuPy sees it; the same memory.

    What its maker has still under way on it, on a stream of his, comes before whatever
    is done to it on CuPy's current stream.

    Raises:
        UnsupportedError: CuPy is not there, or cannot see this kind of array.
    """
    if not on_device(value):
        raise UnsupportedError(
            f"{type(value).__name__} on the host, among arrays on a GPU"
        )
    module = cupy()
    if isinstance(value, module.ndarray):
        return OnDevice(value, value.dtype)
    bits, dtype = _bits_of(value)
    number = device_of(value)
    try:
        with module.cuda.Device(number if number >= 0 else None):
            # DLPack first: it orders the maker's stream before ours.
            view = module.from_dlpack(bits) if number >= 0 else module.asarray(bits)
    except Exception as error:
        raise UnsupportedError(
            f"{type(value).__name__} on a GPU cannot be seen by CuPy: {error}"
        ) from error
    return OnDevice(view, view.dtype if dtype is None else dtype)


def on_one_line(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return the elements of a CuPy array, flat in C order, as `dtype`.

    A view where possible.
    """
    return cupy().ascontiguousarray(array, dtype).reshape(-1)


def check_writeable(value: Any) -> None:
    """Raise `InvalidArgumentError` for device memory that its owner wants untouched."""
    interface = None
    with suppress(Exception):  # torch raises for dtypes that it cannot describe
        interface = value.__cuda_array_interface__
    if interface is not None and interface["data"][1]:
        raise InvalidArgumentError("out is read-only; wanted a writeable array")


def _bits_of(value: Any) -> tuple[Any, np.dtype[Any] | None]:
    """Return what CuPy can see of an array, and its dtype where that is another one."""
    if not str(getattr(value, "dtype", "")).endswith("bfloat16"):
        return value, None
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise UnsupportedError("bfloat16 needs the package ml_dtypes") from None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.view(torch.int16), np.dtype(bfloat16)
    return value.view(np.uint16), np.dtype(bfloat16)
