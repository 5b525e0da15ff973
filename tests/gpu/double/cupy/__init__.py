"""A test double of CuPy over host memory; see README.md beside this package.

It has the names that the project uses, under CuPy's signatures, and no others. It lives
in the tests and proves nothing about a real GPU.
"""

from typing import Any

import numpy as _np

from cupy import _util, cuda
from cupy._array import ndarray
from cupy._creation import *  # noqa: F403
from cupy._creation import array, asarray, empty
from cupy._kernel import ElementwiseKernel
from cupy._linear import argmax, dot, matmul
from cupy._misuse import Misuse
from cupy._ufuncs import (
    REDUCTIONS,
    UFUNCS,
    may_share_memory,
    shares_memory,
    ufunc,
    where,
)

__version__ = "14.0.1+double"

globals().update(UFUNCS)
globals().update(REDUCTIONS)
for _name in [
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "dtype",
    "finfo",
    "iinfo",
    "generic",
    "result_type",
    "can_cast",
    "newaxis",
    "nan",
    "inf",
    "pi",
]:
    globals()[_name] = getattr(_np, _name)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"the double of CuPy has no {name!r}")


def get_default_memory_pool() -> Any:
    return cuda.MemoryPool()


def get_default_pinned_memory_pool() -> Any:
    return cuda.PinnedMemoryPool()


__all__ = [
    "ElementwiseKernel",
    "Misuse",
    "_util",
    "argmax",
    "array",
    "asarray",
    "cuda",
    "dot",
    "empty",
    "matmul",
    "may_share_memory",
    "ndarray",
    "shares_memory",
    "ufunc",
    "where",
]
