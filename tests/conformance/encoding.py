"""Our values in the cases' JSON, and whether two such texts say the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import collectives
import strategy as distribute

# Which of our variables stands for which class of TensorFlow.
VARIABLE_KINDS = {
    "mirrored": "MirroredVariable",
    "on_read": "SyncOnReadVariable",
    "aggregating": "AggregatingVariable",
    "plain": "ResourceVariable",
}
SEVERAL = ("mirrored", "on_read")  # the kinds with a component for each replica

# Which of our errors, or builtins, a caller catches where TensorFlow has an error that
# is no builtin.
ERRORS: dict[str, tuple[type[BaseException], ...]] = {
    "InvalidArgumentError": (ValueError,),
    "NotFoundError": (ValueError, LookupError, OSError),
    "OutOfRangeError": (EOFError, StopIteration, IndexError),
    # what comes after a collective that has timed out is refused, or times out too
    "DeadlineExceededError": (TimeoutError, collectives.BrokenCommunicatorError),
    "UnavailableError": (ConnectionError, TimeoutError),
}


def tensor(array: Any) -> dict[str, Any]:
    """Return an array as the cases write one."""
    array = np.asarray(array)
    value = np.vectorize(_scalar, otypes=[object])(array) if array.size else array
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "value": value.tolist(),
    }


def encode(value: Any) -> Any:
    """Return any result as the cases write it."""
    if isinstance(value, distribute.IndexedSlices):
        fields = ("values", "indices", "dense_shape")
        parts = {field: encode(getattr(value, field)) for field in fields}
        return {"kind": "IndexedSlices", **parts}
    if isinstance(value, distribute.Variable):
        if value.kind in SEVERAL:
            kind = VARIABLE_KINDS[value.kind]
            return {"kind": kind, "values": [tensor(part) for part in value.values]}
        return {"kind": "Variable", "values": tensor(value.values[0])}
    if isinstance(value, distribute.Component):
        return {"kind": "Variable", "values": tensor(value)}
    if isinstance(value, distribute.DistributedValues):
        kind = type(value).__name__
        return {"kind": kind, "values": [encode(part) for part in value.values]}
    if isinstance(value, (np.ndarray, np.generic)):
        return tensor(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        items = [encode(item) for item in value]
        return {"namedtuple": type(value).__name__, "items": items}
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    return _scalar(value)


def same(expected: Any, found: Any) -> bool:
    """Return whether two encoded values agree; floats to a relative 1e-6."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            same(expected[key], found[key]) for key in expected
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        return math.isclose(expected, found, rel_tol=1e-6, abs_tol=1e-12)
    return type(expected) is type(found) and bool(expected == found)


def same_error(expected: dict[str, Any], found: BaseException) -> bool:
    """Return whether `found` would be caught where TensorFlow's error would."""
    ours = {kind.__name__ for kind in type(found).__mro__}
    wanted = expected["type"]
    return wanted in ours or isinstance(found, ERRORS.get(wanted, ()))


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        return str(value)  # nan, inf and -inf, as the cases write them
    return value.decode() if isinstance(value, bytes) else value
