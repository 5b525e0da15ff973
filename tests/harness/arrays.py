"""Arrays for tests: dtypes, values by rank and position, layouts, places."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import ml_dtypes
import numpy as np

Array = Any

DTYPES: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed": ("int8", "int16", "int32", "int64"),
    "unsigned": ("uint8", "uint16", "uint32", "uint64"),
    "narrow": ("float16", "bfloat16", "float8_e4m3fn"),
    "float": ("float32", "float64", "longdouble"),
    "complex": ("complex64", "complex128", "clongdouble"),
}
KIND_OF = {name: kind for kind, names in DTYPES.items() for name in names}

ARITHMETIC, ORDER, LOGIC = ("sum", "mean", "prod"), ("min", "max"), ("and", "or", "xor")
OPS_OF = {
    "bool": ORDER + LOGIC,
    "signed": ARITHMETIC + ORDER + LOGIC,
    "unsigned": ARITHMETIC + ORDER + LOGIC,
    "narrow": ARITHMETIC + ORDER,
    "float": ARITHMETIC + ORDER,
    "complex": ARITHMETIC,
}

# So many different whole numbers, around zero, are exact in the narrow floats.
EXACT = {"float16": 2047, "bfloat16": 251, "float8_e4m3fn": 31}
FACTORS = np.array([1, -2, 3, 0.5, -1, -3, 2])
COMPLEX_FACTORS = np.array([1 + 1j, 2 - 1j, -1j, 1, -2 + 1j, 3])


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


@lru_cache(maxsize=1024)
def values(name: str, op: str, rank: int, shape: tuple[int, ...]) -> Array:
    """Return a rank's contribution: different by rank and position, and exact.

    Whatever the order in which five ranks' floats are combined, nothing is rounded
    before the end; integers overflow and wrap. Read-only, because it is remembered.
    """
    dtype, kind = dtype_of(name), KIND_OF[name]
    places = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(rank * 7919)
    scattered = (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    scattered ^= scattered >> np.uint64(29)
    if kind == "bool":
        flat = scattered % np.uint64(3) > 0
    elif kind in ("signed", "unsigned"):
        bits = 50 if op == "mean" else 64  # sums of five are exact in float64
        flat = (scattered >> np.uint64(64 - bits)).astype(dtype)
    elif op == "prod":
        factors = COMPLEX_FACTORS if kind == "complex" else FACTORS
        flat = factors[(scattered % np.uint64(len(factors))).astype(int)]
    else:
        many = EXACT.get(name, 1_000_003)
        flat = (scattered % np.uint64(many)).astype(float) - many // 2
        if kind == "complex":
            flat = flat + 1j * (flat // 3)
    array = flat.astype(dtype).reshape(shape)
    array.flags.writeable = False
    return array


def garbage(array: Array) -> Array:
    """Return an array of this shape and dtype with nothing but nonsense in it."""
    return np.full(array.shape, 55, np.uint8).astype(array.dtype)


def equal(a: Array, b: Array) -> bool:
    """Tell whether two arrays have the same values, NaN being equal to NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def digest_of(array: Array) -> bytes:
    """Return a digest of an array's bits, without the padding inside long doubles."""
    octets = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    if array.dtype.char in "gG" and np.finfo(np.longdouble).nmant == 63:
        octets = octets.reshape(-1, np.dtype(np.longdouble).itemsize)[:, :10]
    return blake2b(octets.tobytes(), digest_size=16).digest()


# --- layouts: the same elements, laid out in memory in different ways ----------------


def _strided(array: Array) -> Array:
    if array.ndim == 0:
        return np.stack([array, array])[1:].reshape(())
    parent = np.repeat(array, 2, axis=-1)
    return parent[..., ::2]


def _reversed(array: Array) -> Array:
    if array.ndim == 0:
        return array.copy()  # an index would make it a scalar
    backwards = (slice(None, None, -1),) * array.ndim
    return array[backwards].copy()[backwards]


def _read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def _unaligned(array: Array) -> Array:
    memory = np.empty(array.nbytes + 1, np.uint8)[1:]
    view = memory.view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def _swapped(array: Array) -> Array:
    if array.dtype.num >= 256:  # NumPy cannot swap dtypes that are not its own
        return array.copy()
    return array.astype(array.dtype.newbyteorder())


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda array: array.copy(),
    "Fortran": lambda array: array.copy(order="F"),
    "strided": _strided,
    "reversed": _reversed,
    "read-only": _read_only,
    "unaligned": _unaligned,
    "byte-swapped": _swapped,
}


# --- places: where a result of a given shape and dtype may go ------------------------


@contextmanager
def _contiguous(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Array]:
    """A piece of a larger flat array."""
    count = int(np.prod(shape))
    parent = np.full(count + 10, 7).astype(dtype)
    yield parent[5 : 5 + count].reshape(shape)
    parent[5 : 5 + count] = parent[0]
    assert (parent == np.full((), 7).astype(dtype)).all(), "a neighbour was touched"


@contextmanager
def _view(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Array]:
    """Every other element along every axis, the first axis backwards."""
    parent = np.full([2 * length + 3 for length in (*shape, 1)], 7).astype(dtype)
    inside = [slice(1, 2 * length + 1, 2) for length in (*shape, 1)]
    view = parent[tuple(inside)][..., 0]
    yield view[::-1] if shape else view
    view[...] = parent.flat[0]
    assert (parent == np.full((), 7).astype(dtype)).all(), "a neighbour was touched"


PLACES: dict[str, Any] = {"contiguous": _contiguous, "view": _view}
