"""The few names of cupyx that give pinned arrays."""

from typing import Any

import numpy as np
from cupy.cuda import alloc_pinned_memory


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = int(np.prod(shape))
    if count == 0:
        return np.empty(shape, dtype, order)
    memory = alloc_pinned_memory(count * dtype.itemsize)
    return np.ndarray(shape, dtype, buffer=memory, order=order)


def zeros_pinned(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    out = empty_pinned(shape, dtype, order)
    out[...] = 0
    return out


def empty_like_pinned(a: Any, dtype: Any = None, order: str = "K", **more: Any) -> Any:
    return empty_pinned(a.shape, dtype or a.dtype, "C" if order == "K" else order)
