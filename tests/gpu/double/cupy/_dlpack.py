"""DLPack: capsules that say a device, made from NumPy's own and read back."""

import ctypes
from typing import Any

import numpy as np

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = (
    ctypes.c_void_p,
    [ctypes.py_object, ctypes.c_char_p],
)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]

KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
BFLOAT = 4


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


VERSIONED = b"dltensor_versioned"
BEFORE_TENSOR = 32
"""Bytes of version, owner, deleter and flags in a versioned capsule."""


def _tensor(capsule: Any) -> Tensor:
    if _is_valid(capsule, VERSIONED):
        return Tensor.from_address(_pointer_of(capsule, VERSIONED) + BEFORE_TENSOR)
    return Tensor.from_address(_pointer_of(capsule, b"dltensor"))


def capsule(view: Any, device: tuple[int, int], owner: Any, version: Any) -> Any:
    """Return a capsule over an array's memory, which keeps its owner alive."""
    bfloat = view.dtype.name == "bfloat16"
    holder = _Holder(view.view(np.int16) if bfloat else view, owner)
    made = np.asarray(holder).__dlpack__(max_version=version)
    tensor = _tensor(made)
    tensor.device_type, tensor.device_id = device
    if bfloat:
        tensor.code = BFLOAT
    return made


class _Holder:
    """An array interface whose owner lives as long as whoever looks through it."""

    def __init__(self, view: Any, owner: Any) -> None:
        self.__array_interface__ = view.__array_interface__
        self.view, self.owner = view, owner


def read(made: Any) -> tuple[int, tuple[int, ...], Any, Any, tuple[int, int]]:
    """Return address, shape, dtype, strides in bytes, and device."""
    tensor = _tensor(made)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.code == BFLOAT:
        import ml_dtypes

        dtype = np.dtype(ml_dtypes.bfloat16)
    else:
        kind, size = KINDS[tensor.code], tensor.bits // 8
        dtype = np.dtype(bool if kind == "b" else f"{kind}{size}")
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    address = (tensor.data or 0) + tensor.byte_offset
    device = (tensor.device_type, tensor.device_id)
    return address, shape, dtype, strides, device
