"""Where arrays are: in the host's memory or on a GPU, and how they get elsewhere.

A *place* is the number of a GPU, as CUDA counts those that this process sees, or None
for the host. Arrays on a GPU are CuPy's. NumPy's functions work on them too, but with
their GPU being the current one; and CuPy is imported only where one is named, or met.

What is done on a GPU is queued on the stream that is current for it in this thread. A
copy between two of them is ordered after what is queued on the one, and before what
will be queued on either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np

import collectives

T = TypeVar("T")
Place = int | None
HOST = (np.ndarray, np.generic)
_nowhere: AbstractContextManager[Any] = nullcontext()


def place_of(array: Any) -> Place:
    """Return where an array is, or IndexedSlices are."""
    if type(array) is np.ndarray or isinstance(array, HOST):
        return None
    module = sys.modules.get("cupy")
    if module is None:
        return None
    if hasattr(array, "indices"):
        array = array.values
    return int(array.device.id) if isinstance(array, module.ndarray) else None


def seen(array: Any) -> Any:
    """Return an array of anybody's that is on a GPU as CuPy's, of the same memory.

    Raises `UnsupportedError` for elements that CuPy cannot compute with.
    """
    if place_of(array) is not None or not collectives.gpu.on_device(array):
        return array
    view = collectives.gpu.device_view(array)
    if not view.known:
        raise collectives.UnsupportedError(
            f"{view.dtype} on a GPU: CuPy has no such numbers; wanted another dtype"
        )
    return view.array


def on(place: Place) -> AbstractContextManager[Any]:
    """Return what makes a GPU the current one; of the host, nothing."""
    if place is None:
        return _nowhere
    device: AbstractContextManager[Any] = collectives.gpu.cupy().cuda.Device(place)
    return device


def in_use() -> bool:
    """Tell whether there can be arrays on GPUs: nothing has imported CuPy if not."""
    return "cupy" in sys.modules


def first_place(values: Iterable[Any]) -> Place:
    """Return the GPU that the first array on a GPU is on; None without any."""
    if not in_use():
        return None
    places = map(place_of, values)
    return next((place for place in places if place is not None), None)


def there(place: Place, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Return what a function gives, called with a GPU being the current one."""
    if place is None:
        return function(*arguments, **named)
    with on(place):
        return function(*arguments, **named)


def moved(array: Any, place: Place) -> Any:
    """Return an array at a place: itself if it is there, else a copy."""
    here = place_of(array)
    if here == place:
        return array
    if hasattr(array, "indices"):
        return array.moved(place)
    if place is None:
        with on(here):
            return array.get()
    with on(place):
        if here is None:
            # Through pinned memory of CuPy's: the array may change at once.
            return collectives.gpu.cupy().asarray(array)
        return _across(array, here, place)


def copied(array: Any, place: Place) -> Any:
    """Return a copy of an array at a place, with memory of its own."""
    if place_of(array) != place:
        return moved(array, place)
    return there(place, array.copy)


def cast(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array where it is, of another dtype; itself if it has that."""
    if array.dtype == dtype:
        return array
    return there(place_of(array), array.astype, dtype)


def together(arrays: Sequence[Any]) -> Sequence[Any]:
    """Return arrays where the first of them is."""
    if not in_use():
        return arrays
    place = place_of(arrays[0])
    return [moved(array, place) for array in arrays]


def on_host(array: Any) -> Any:
    """Return an array in the host's memory."""
    return moved(array, None)


def _across(array: Any, here: int, place: int) -> Any:
    """Copy from one GPU to another, whose streams wait for one another."""
    cuda, order = collectives.gpu.cupy().cuda, {"disable_timing": True}
    with on(here):
        if not array.flags.c_contiguous:
            array = array.copy()
        giving, ready = cuda.get_current_stream(), cuda.Event(**order)
        ready.record(giving)
    with on(place):
        taking, done = cuda.get_current_stream(), cuda.Event(**order)
        taking.wait_event(ready)
        copy = array.copy()
        done.record(taking)
    with on(here):
        # What is freed now is given out anew on this stream, and only then written.
        giving.wait_event(done)
    return copy
