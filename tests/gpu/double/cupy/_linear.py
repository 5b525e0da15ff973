"""Products of matrices, and where the largest element is."""

from typing import Any

import numpy as np

from cupy._array import launch, ndarray


def matmul(x1: Any, x2: Any, out: Any = None) -> ndarray:
    """Return the product of matrices, or of a matrix and a vector."""
    for x in (x1, x2):
        if not isinstance(x, ndarray):
            raise TypeError(f"Unsupported type {type(x)}")
    a, b = x1._view, x2._view
    shape = np.matmul(np.empty(a.shape, "?"), np.empty(b.shape, "?")).shape
    made = ndarray(shape, np.result_type(a, b)) if out is None else out
    target = made._view

    def run() -> None:
        target[...] = np.matmul(a, b)

    launch("matmul", run, [x1, x2], [made])
    return made


dot = matmul


def argmax(a: ndarray, axis: Any = None) -> ndarray:
    """Return the place of the largest element along an axis, or in all of the array."""
    view = a._view
    made = ndarray(np.argmax(np.zeros(a.shape, "?"), axis).shape, np.int64)
    target = made._view

    def run() -> None:
        target[...] = np.argmax(view, axis)

    launch("argmax", run, [a], [made])
    return made


def _product(self: ndarray, other: Any) -> Any:
    # As in CuPy: NumPy asks all operands what they make of it.
    return matmul(self, other) if isinstance(other, ndarray) else np.matmul(self, other)


def _swapped(self: ndarray, other: Any) -> Any:
    return NotImplemented if not isinstance(other, ndarray) else matmul(other, self)


ndarray.__matmul__, ndarray.__rmatmul__ = _product, _swapped  # type: ignore[attr-defined]
ndarray.dot = matmul  # type: ignore[attr-defined]
ndarray.argmax = argmax  # type: ignore[attr-defined]
