"""Inputs that show every misplaced element, and results computed without Ringfold.

Equal values would hide wrong positions and wrong ranks, so each rank's input is its own
sequence of random small integers. It repeats with a prime period: no shift by a block
or a segment maps it to itself, long arrays are filled and compared at the speed of
memory, and the expected result of any size is one short array. Sums of such integers
are exact in every dtype and order (float16 up to 682 ranks, bfloat16 up to 85; integers
wrap).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.bench import device

__all__ = ["PERIOD", "count_wrong", "expected", "fill", "pattern", "spoil", "steady"]

PERIOD = 65521

# Smallest and largest value of the inputs; products grow too fast for more than 2.
RANGES = {"sum": (0, 3), "mean": (0, 3), "prod": (1, 2)}
WIDE = (0, 127)

UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@lru_cache(maxsize=64)
def pattern(rank: int, op: str, dtype: str, ranks: int) -> NDArray[Any]:
    """Return one period of a rank's input for an op ("none" where nothing is reduced).

    For a mean every value is a multiple of the number of ranks, which makes the
    division exact.
    """
    low, high = RANGES.get(op, WIDE)
    values = np.random.default_rng([2026, rank]).integers(low, high + 1, PERIOD)
    return (values * ranks if op == "mean" else values).astype(dtype)


def expected(sources: tuple[int, ...], op: str, dtype: str, ranks: int) -> NDArray[Any]:
    """Return one period of the reduction of these ranks' inputs, or the only one's.

    Without any rank it is the identity of the op.
    """
    if not sources:
        return np.full(PERIOD, _identity(op, np.dtype(dtype)))
    result = pattern(sources[0], op, dtype, ranks)
    for source in sources[1:]:
        result = UFUNCS[op](result, pattern(source, op, dtype, ranks))
    return (result / ranks).astype(dtype) if op == "mean" else result


def _identity(op: str, dtype: np.dtype[Any]) -> Any:
    """Return what changes nothing: for min and max the far end of the dtype."""
    if op not in ("min", "max"):
        return np.asarray(UFUNCS[op].identity).astype(dtype)
    if dtype.kind in "iu":
        whole = np.iinfo(dtype)
        return dtype.type(whole.max if op == "min" else whole.min)
    return dtype.type(np.inf if op == "min" else -np.inf)


def fill(array: NDArray[Any], period: NDArray[Any]) -> None:
    """Repeat one period over an array."""
    period = device.like(array, period)
    for start in range(0, array.size, PERIOD):
        piece = array[start : start + PERIOD]
        piece[:] = period[: piece.size]


def count_wrong(array: NDArray[Any], period: NDArray[Any], start: int = 0) -> int:
    """Return the number of elements that differ from the repeated period.

    The first one belongs to element `start` of the repetition.
    """
    wrong, period = 0, device.like(array, np.roll(period, -start % PERIOD))
    for start in range(0, array.size, PERIOD):
        piece = array[start : start + PERIOD]
        wrong += int(np.count_nonzero(piece != period[: piece.size]))
    return wrong


def spoil(array: NDArray[Any]) -> None:
    """Fill an array with bytes that are no result, lest an old one be taken for new."""
    array.view(np.uint8).fill(0xA5)


def steady(op: str) -> int:
    """Return the value that timed calls work on.

    A batch reduces in place again and again. Only the op's fixed point stays finite:
    under a sum anything but zero doubles with every call until it overflows.
    """
    return 1 if op == "prod" else 0
