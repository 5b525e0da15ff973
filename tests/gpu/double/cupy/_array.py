"""`cupy.ndarray`: an array over device memory, which only streams read and write."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cupy import _dlpack, _engine, _ranges
from cupy._util import PerformanceWarning
from cupy.cuda import runtime
from cupy.cuda.device import Device
from cupy.cuda.memory import MemoryPointer, alloc
from cupy.cuda.stream import get_current_stream

KNOWN = "?bhilqBHILQefdFD"
"""The dtypes of CuPy, as characters; and bfloat16."""

SCALARS = (bool, int, float, complex, np.generic)


def supported(dtype: Any) -> np.dtype[Any]:
    """Return a dtype, if it is one that CuPy has."""
    dtype = np.dtype(dtype)
    if dtype.byteorder == ">":
        raise ValueError(f"Unsupported dtype {dtype} with big-endian byte-order")
    known = dtype.char in KNOWN and dtype.num < 256
    if not (known or dtype.name == "bfloat16" or dtype.kind == "V"):
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


class _Memory:
    """What NumPy takes for an array over bare addresses."""

    def __init__(self, ptr: int, shape: Any, itemsize: int, strides: Any) -> None:
        self.__array_interface__ = {
            "data": (ptr, False),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{itemsize}",
            "version": 3,
        }


def over(ptr: int, shape: Any, dtype: np.dtype[Any], strides: Any = None) -> Any:
    """Return a NumPy array over memory; for the double's own use, inside of work."""
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    if not shape:
        return over(ptr, (1,), dtype).reshape(())
    raw = np.asarray(_Memory(ptr, shape, dtype.itemsize, strides))
    return raw if dtype.kind == "V" and dtype.num < 256 else _typed(raw, dtype)


def _typed(raw: Any, dtype: np.dtype[Any]) -> Any:
    raw.dtype = dtype
    return raw


def spans(view: Any) -> list[tuple[int, int]]:
    """Return the addresses between which an array lies."""
    return [np.lib.array_utils.byte_bounds(view)] if view.size else []


class Flags:
    def __init__(self, view: Any, owndata: bool) -> None:
        flags = view.flags
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous
        self.forc, self.fnc, self.owndata = flags.forc, flags.fnc, owndata

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))


class ndarray:
    __array_priority__ = 100

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: Any = None,
        strides: Any = None,
        order: str = "C",
    ) -> None:
        shape = (int(shape),) if np.ndim(shape) == 0 else tuple(int(n) for n in shape)
        dtype = supported(dtype)
        if memptr is None:
            memptr = alloc(math.prod(shape) * dtype.itemsize)
        if strides is None and order == "F":
            strides = np.empty(shape, np.dtype(f"V{dtype.itemsize}"), "F").strides
        self._set(over(memptr.ptr, shape, dtype, strides), memptr, None)

    def _set(self, view: Any, data: MemoryPointer, base: Any) -> None:
        self._view, self.data, self.base = view, data, base

    @classmethod
    def _of(cls, view: Any, parent: "ndarray") -> "ndarray":
        """Return an array over a part of another one's memory."""
        made = cls.__new__(cls)
        offset = view.__array_interface__["data"][0] - parent.data.ptr
        data = parent.data + offset if view.size else parent.data
        made._set(view, data, parent if parent.base is None else parent.base)
        return made

    # --- what it is ---

    shape = property(lambda self: self._view.shape)
    dtype = property(lambda self: self._view.dtype)
    strides = property(lambda self: self._view.strides)
    size = property(lambda self: self._view.size)
    ndim = property(lambda self: self._view.ndim)
    itemsize = property(lambda self: self._view.itemsize)
    nbytes = property(lambda self: self._view.nbytes)
    device = property(lambda self: Device(self.data.device_id))
    flags = property(lambda self: Flags(self._view, self.base is None))
    T = property(lambda self: self.transpose())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        stream = get_current_stream().ptr
        dtype = self.dtype
        return {
            "shape": self.shape,
            "typestr": dtype.str if dtype.num < 256 else f"|V{dtype.itemsize}",
            "descr": dtype.descr if dtype.num < 256 else [("", f"|V{dtype.itemsize}")],
            "stream": stream or runtime.streamLegacy,
            "version": 3,
            "strides": None if self._view.flags.c_contiguous else self.strides,
            "data": (self.data.ptr if self.size else 0, False),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.data.device_id)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: Any = None,
    ) -> Any:  # fmt: skip
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("unsupported device requested.")
        here = get_current_stream()
        wanted = runtime.streamLegacy if stream is None else stream
        if wanted < -1:
            raise ValueError(f"On CUDA, {stream} is no valid stream")
        if wanted == -1:
            # Whoever asks for no order, as MPI does, must have been given one.
            for address, high in spans(self._view):
                _engine.check_host(
                    address, high - address, writes=False, who="a DLPack consumer"
                )
        elif wanted != (here.ptr or runtime.streamLegacy):
            runtime.streamWaitEvent(wanted, here.record().ptr)
        return _dlpack.capsule(self._view, self.__dlpack_device__(), self, max_version)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **more: Any
    ) -> Any:
        import cupy

        function = getattr(cupy, ufunc.__name__, None)
        if method != "__call__" or function is None:
            return NotImplemented
        if "out" in more:
            if len(more["out"]) != 1:
                raise ValueError(
                    "The 'out' parameter must have exactly one array value"
                )
            more["out"] = more["out"][0]
        known = (ndarray, np.ndarray, *SCALARS)
        for x in (*inputs, *([more["out"]] if "out" in more else [])):
            if not isinstance(x, known) and not hasattr(x, "__cuda_array_interface__"):
                return NotImplemented  # the other operand may know what to do
        return function(*inputs, **more)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        import cupy

        function = getattr(cupy, func.__name__, None)
        if func.__module__ != "numpy" or function is None or function is func:
            return NotImplemented
        if not all(issubclass(kind, ndarray) for kind in types):
            return NotImplemented
        return function(*args, **kwargs)

    # --- to and from the host ---

    def get(
        self,
        stream: Any = None,
        order: str = "C",
        out: Any = None,
        blocking: bool = True,
    ) -> Any:
        stream = get_current_stream() if stream is None else stream
        source = self
        if out is not None:
            if not isinstance(out, np.ndarray):
                raise TypeError("Only numpy.ndarray can be obtained from cupy.ndarray")
            if self.dtype != out.dtype:
                raise TypeError(
                    f"{out.dtype} array cannot be obtained from {self.dtype}"
                )
            if self.shape != out.shape:
                raise ValueError(
                    f"Shape mismatch. Expected {self.shape}, got {out.shape}"
                )
            order = "C" if out.flags.c_contiguous else "F"
            if not out.flags.forc:
                raise RuntimeError("`out` cannot be non-contiguous")
        else:
            if self.size == 0:
                return np.empty(self.shape, self.dtype)
            if order == "A":
                order = "F" if self._view.flags.f_contiguous else "C"
            out = np.empty(self.shape, self.dtype, order)  # type: ignore[call-overload]
        with self.device:
            if not self._view.flags[f"{order}_CONTIGUOUS"]:
                with stream:
                    source = self.copy(order)
            address = out.ctypes.data
            if self.size:
                source.data.copy_to_host_async(address, self.nbytes, stream)
            if blocking:
                stream.synchronize()
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if self.dtype != arr.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if self.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old {self.shape}, new {arr.shape}")
        flags = self._view.flags
        if not flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        arr = (
            np.ascontiguousarray(arr) if flags.c_contiguous else np.asfortranarray(arr)
        )
        stream = get_current_stream() if stream is None else stream
        with self.device:
            self.data.copy_from_host_async(arr.ctypes.data, self.nbytes, stream)

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return bytes(self.get().tobytes(order))

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __index__(self) -> int:
        return int(self.get().__index__())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __reduce__(self) -> Any:
        import cupy

        return (cupy.asarray, (self.get(),))

    __hash__ = None  # type: ignore[assignment]

    # --- views and copies ---

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Any:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, index: Any) -> "ndarray":
        if _is_basic(index):
            index = index if isinstance(index, tuple) else (index,)
            if Ellipsis not in index:
                index = (*index, Ellipsis)  # so that NumPy returns no scalar
            return self._of(self._view[index], self)
        import cupy

        return cupy.asarray(self.get()[_on_host(index)])  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            whole = isinstance(index, slice) and index == slice(None)
            if whole and value.dtype == self.dtype and value.shape == self.shape:
                return self.set(value)
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        if not _is_basic(index):
            host = self.get()
            host[_on_host(index)] = _on_host(value)
            return self[...].set(host)
        target = self[index]
        if isinstance(value, ndarray):
            copy_into(target, value)
        else:
            target.fill(value)
        return None

    def reshape(self, *shape: Any, order: str = "C") -> "ndarray":
        shape = shape[0] if len(shape) == 1 else shape
        if order in "AK":
            order = "F" if self._view.flags.fnc else "C"
        shaped = self._view.reshape(shape, order=order)
        if not self.size or np.may_share_memory(shaped, self._view):
            return self._of(shaped, self)
        return self.copy(order).reshape(shape, order=order)

    def ravel(self, order: str = "C") -> "ndarray":
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> "ndarray":
        return self.copy(order).reshape(-1, order=order)

    def transpose(self, *axes: Any) -> "ndarray":
        return self._of(self._view.transpose(*axes), self)

    def swapaxes(self, axis1: int, axis2: int) -> "ndarray":
        return self._of(self._view.swapaxes(axis1, axis2), self)

    def squeeze(self, axis: Any = None) -> "ndarray":
        return self._of(self._view.squeeze(axis), self)

    def view(self, dtype: Any = None) -> "ndarray":
        return self._of(self._view.view(dtype or self.dtype), self)

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None,
        copy: bool = True,
    ) -> "ndarray":  # fmt: skip
        dtype = supported(dtype)
        if not copy and dtype == self.dtype:
            return self
        made = like(self, dtype, order)
        copy_into(made, self)
        return made

    def copy(self, order: str = "C") -> "ndarray":
        """Copy to the current device, wherever the array is."""
        if self.data.device_id == runtime.getDevice() or not self.size:
            return self.astype(self.dtype, order)
        with self.device:
            packed = self.astype(self.dtype, order, copy=not _plain(self))
        made = like(packed)
        copy_into(made, packed)
        return made

    def fill(self, value: Any) -> None:
        if isinstance(value, ndarray):
            return copy_into(self, value)
        scalar, view = np.asarray(value).astype(self.dtype), self._view
        launch("fill", lambda: np.copyto(view, scalar), [], [self])
        return None


def _is_basic(index: Any) -> bool:
    index = index if isinstance(index, tuple) else (index,)
    plain = (int, np.integer, slice, type(None), type(Ellipsis))
    return all(isinstance(i, plain) and not isinstance(i, bool) for i in index)


def _on_host(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_on_host, index))
    return index.get() if isinstance(index, ndarray) else index


def like(a: ndarray, dtype: Any = None, order: str = "K", shape: Any = None) -> ndarray:
    """Return a new array in the memory order of another."""
    shape = a.shape if shape is None else shape
    dtype = a.dtype if dtype is None else np.dtype(dtype)
    form = np.empty_like(
        a._view,
        np.dtype(f"V{dtype.itemsize}"),
        order,
        shape=shape,  # type: ignore
    )
    contiguous = form.flags.c_contiguous
    strides = None if contiguous or form.size == 0 else form.strides
    return ndarray(shape, dtype, None, strides)


def copy_into(target: ndarray, source: ndarray) -> None:
    """Copy elements, with a cast; between devices too."""
    if source.data.device_id == target.data.device_id or not source.size:
        to, of = target._view, source._view
        launch("copy", lambda: _cast(to, of), [source], [target])
        return
    if not (_plain(source) and _plain(target)) or source.dtype != target.dtype:
        raise NotImplementedError(
            "the double copies between devices what is contiguous"
        )
    target.data.copy_from_device_async(source.data, source.nbytes)


def _plain(array: ndarray) -> bool:
    return bool(array._view.flags.c_contiguous)


def _cast(target: Any, source: Any) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.copyto(target, source, casting="unsafe")


def launch(
    what: str,
    run: Callable[[], Any],
    reads: Sequence[ndarray],
    writes: Sequence[ndarray],
) -> None:
    """Put a kernel on the current stream of the current device."""
    device = runtime.getDevice()
    for array in (*reads, *writes):
        _check_peer(array, device)
        if array.size:
            low, high = spans(array._view)[0]
            _ranges.on_device(low, high - low, what)
    queue = _engine.queue(device, get_current_stream().ptr)
    if queue.device != device:
        raise runtime.CUDARuntimeError(400)

    def quietly() -> None:
        with np.errstate(all="ignore"):
            run()

    read = [span for array in reads for span in spans(array._view)]
    written = [span for array in writes for span in spans(array._view)]
    if written:
        _engine.submit(queue, what, quietly, read, written)


def _check_peer(array: ndarray, device: int) -> None:
    there = array.data.device_id
    if there == device:
        return
    text = (
        f"The device where the array resides ({there}) is different from the current "
        f"device ({device})."
    )
    if not runtime.deviceCanAccessPeer(device, there):
        raise ValueError(f"{text} Peer access is unavailable between these devices.")
    with Device(device):
        runtime._deviceEnsurePeerAccess(there)
    warnings.warn(
        f"{text} Peer access has been activated automatically.",
        PerformanceWarning,
        stacklevel=3,
    )
