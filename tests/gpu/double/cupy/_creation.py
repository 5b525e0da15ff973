"""Functions that make arrays, or join and turn them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cupy import _dlpack
from cupy._array import copy_into, launch, like, ndarray, supported
from cupy.cuda import runtime
from cupy.cuda.memory import MemoryPointer, UnownedMemory
from cupy.cuda.stream import get_current_stream


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    if dtype is None:
        known = isinstance(fill_value, ndarray)
        dtype = fill_value.dtype if known else np.asarray(fill_value).dtype
    made = ndarray(shape, dtype, order=order)
    made.fill(fill_value)
    return made


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 0, dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 1, dtype, order)


def empty_like(
    prototype: ndarray, dtype: Any = None, order: str = "K", subok: Any = None,
    shape: Any = None,
) -> ndarray:  # fmt: skip
    if shape is not None:
        shape = tuple(np.atleast_1d(shape))
        same = len(shape) == prototype.ndim
        return (
            like(prototype, dtype, order, shape)
            if same
            else empty(shape, dtype or prototype.dtype)
        )
    return like(prototype, dtype, order)


def full_like(
    a: ndarray, fill_value: Any, dtype: Any = None, order: str = "K", subok: Any = None,
    shape: Any = None,
) -> ndarray:  # fmt: skip
    made = empty_like(a, dtype, order, subok, shape)
    made.fill(fill_value)
    return made


def zeros_like(a: ndarray, dtype: Any = None, order: str = "K", **more: Any) -> ndarray:
    return full_like(a, 0, dtype, order, **more)


def ones_like(a: ndarray, dtype: Any = None, order: str = "K", **more: Any) -> ndarray:
    return full_like(a, 1, dtype, order, **more)


def array(
    obj: Any, dtype: Any = None, copy: Any = True, order: str = "K",
    subok: bool = False, ndmin: int = 0, *, blocking: bool = False,
) -> ndarray:  # fmt: skip
    if not isinstance(obj, ndarray) and hasattr(obj, "__cuda_array_interface__"):
        obj = _from_interface(obj)
    if isinstance(obj, ndarray):
        wanted = obj.dtype if dtype is None else np.dtype(dtype)
        flags = obj._view.flags
        kept = {"C": flags.c_contiguous, "F": flags.f_contiguous}.get(
            order or "K", True
        )
        if not copy and wanted == obj.dtype and kept:
            return obj
        made = obj.astype(wanted, order or "K")
    else:
        if isinstance(obj, (list, tuple)) and any(isinstance(x, ndarray) for x in obj):
            obj = [x.get() if isinstance(x, ndarray) else x for x in obj]
        host = np.array(obj, dtype, order=order or "K")  # type: ignore[call-overload]
        supported(host.dtype)
        made = ndarray(host.shape, host.dtype, order="F" if host.flags.fnc else "C")
        packed = host if host.flags.forc else np.ascontiguousarray(host)
        # CuPy goes through pinned memory of its own, so the host's may change at once.
        made.set(packed.reshape(host.shape))
    if blocking:
        get_current_stream().synchronize()
    return made.reshape((1,) * (ndmin - made.ndim) + made.shape) if ndmin else made


def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None,
    blocking: bool = False,
) -> ndarray:  # fmt: skip
    return array(a, dtype, bool(copy), order or "K", blocking=blocking)


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    made = array(a, dtype, copy=False, order="C")
    return made if made.ndim else made.reshape(1)


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    return array(a, dtype, copy=False, order="F")


def copy(a: Any, order: str = "K") -> ndarray:
    return array(a, order=order)


def arange(*bounds: Any, dtype: Any = None) -> ndarray:
    """Return a range, which is there when the stream has got to it."""
    return array(np.arange(*bounds, dtype=dtype))


def asnumpy(
    a: Any,
    stream: Any = None,
    order: str = "C",
    out: Any = None,
    *,
    blocking: bool = True,
) -> Any:
    if isinstance(a, ndarray):
        return a.get(stream, order, out, blocking)
    if hasattr(a, "__cuda_array_interface__"):
        return array(a, copy=False).get(stream, order, out, blocking)
    return np.asarray(a, order=order)  # type: ignore[call-overload]


def get_array_module(*args: Any) -> Any:
    import cupy

    return cupy if any(isinstance(a, ndarray) for a in args) else np


def copyto(
    dst: ndarray, src: Any, casting: str = "same_kind", where: Any = None
) -> None:
    if isinstance(src, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if not isinstance(src, ndarray):
        return dst.fill(src)
    if not np.can_cast(src.dtype, dst.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(f"Cannot cast {src.dtype} to {dst.dtype} by {casting!r}")
    if where is not None:
        to, of, mask = dst._view, src._view, where._view
        launch("copyto", lambda: np.copyto(to, of, casting, mask), [src, where], [dst])
        return None
    return copy_into(dst, src)


def from_dlpack(x: Any, device: Any = None, copy: Any = None) -> ndarray:
    kind, number = x.__dlpack_device__()
    if kind != 2:
        raise TypeError("the double takes DLPack arrays of a device only")
    stream = get_current_stream().ptr or runtime.streamLegacy
    capsule = x.__dlpack__(stream=stream)
    address, shape, dtype, strides, _ = _dlpack.read(capsule)
    nbytes = math.prod(shape) * dtype.itemsize
    memory = UnownedMemory(address, nbytes, (capsule, x), number)
    return ndarray(shape, dtype, MemoryPointer(memory, 0), strides)


def _from_interface(obj: Any) -> ndarray:
    told = obj.__cuda_array_interface__
    dtype, address = np.dtype(told["typestr"]), told["data"][0]
    nbytes = math.prod(told["shape"]) * dtype.itemsize
    device = -1 if nbytes else runtime.getDevice()
    memory = UnownedMemory(address, nbytes, obj, device)
    stream = told.get("stream")
    if stream is not None:
        runtime.streamSynchronize(stream)
    return ndarray(told["shape"], dtype, MemoryPointer(memory, 0), told.get("strides"))


def concatenate(
    tup: Sequence[ndarray], axis: Any = 0, out: Any = None, *, dtype: Any = None,
    casting: str = "same_kind",
) -> ndarray:  # fmt: skip
    parts = [part.ravel() for part in tup] if axis is None else list(tup)
    axis = 0 if axis is None else axis
    if out is None:
        lengths = sum(part.shape[axis] for part in parts)
        shape = list(parts[0].shape)
        shape[axis] = lengths
        kind = (
            np.result_type(*(part.dtype for part in parts)) if dtype is None else dtype
        )
        out = empty(tuple(shape), kind)
    start = 0
    place: list[Any] = [slice(None)] * parts[0].ndim
    for part in parts:
        place[axis] = slice(start, start + part.shape[axis])
        copy_into(out[tuple(place)], part)
        start += part.shape[axis]
    return out  # type: ignore[no-any-return]


def stack(tup: Sequence[ndarray], axis: int = 0, out: Any = None) -> ndarray:
    return concatenate([expand_dims(part, axis) for part in tup], axis, out)


def expand_dims(a: ndarray, axis: Any) -> ndarray:
    return ndarray._of(np.expand_dims(a._view, axis), a)


def atleast_1d(*arys: ndarray) -> Any:
    made = [a if a.ndim else a.reshape(1) for a in arys]
    return made[0] if len(made) == 1 else made


def moveaxis(a: ndarray, source: Any, destination: Any) -> ndarray:
    return ndarray._of(np.moveaxis(a._view, source, destination), a)


def broadcast_to(array: ndarray, shape: Any) -> ndarray:
    return ndarray._of(np.broadcast_to(array._view, shape), array)


def reshape(a: ndarray, newshape: Any, order: str = "C") -> ndarray:
    return a.reshape(newshape, order=order)


def ravel(a: ndarray, order: str = "C") -> ndarray:
    return a.ravel(order)


def transpose(a: ndarray, axes: Any = None) -> ndarray:
    return a.transpose() if axes is None else a.transpose(*axes)


def shape(a: Any) -> Any:
    return a.shape


def size(a: Any, axis: Any = None) -> Any:
    return a.size if axis is None else a.shape[axis]


def ndim(a: Any) -> Any:
    return a.ndim


def array_equal(a1: ndarray, a2: ndarray, equal_nan: bool = False) -> Any:
    if a1.shape != a2.shape:
        return array(False)
    same = a1 == a2  # type: ignore[operator]
    if equal_nan:
        same = same | ((a1 != a1) & (a2 != a2))  # type: ignore[operator]
    return same.all()
