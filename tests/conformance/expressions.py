"""Values that the cases write as text: `r+1`, `[int32 r, r+1]`, `fill([2,r+1], r)`.

The text becomes Python by three rules (`2r` is 2*r, `^` is a power, a dtype before an
expression converts it) and is evaluated with the few names below. Numbers come out as
Python's; `tensors` makes arrays of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import NotUnderstood

DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16"}
DTYPES |= {name: name for name in ("float16", "float32", "float64", "int32", "int64")}
_TYPED = re.compile(rf"\b({'|'.join(DTYPES)})\s+([^,\]\)}}]+)")
_REMARK = re.compile(r"\s*(\((tensor|scalars?)\)|made per replica)\s*$")


def python_of(text: str) -> str:
    """Return the Python expression that a text stands for."""
    text = _REMARK.sub("", text).replace("^", "**").replace("tf.", "")
    text = re.sub(r"^(scalar|tensor)\s+", "", text)
    text = re.sub(r"(?<![\w.])(\d+)(?=[a-z(])", r"\1*", text)
    return _TYPED.sub(lambda found: f"{DTYPES[found[1]]}({found[2]})", text)


def range_(*bounds: int) -> Any:
    """Return the numbers from 0, or from the first to before the last, as float32."""
    return np.arange(*bounds, dtype=np.float32)


def evaluate(text: str, **names: Any) -> Any:
    """Return the value of a text; `names` are its variables, such as r."""
    names = {**NAMES, **names}
    names |= {dtype: getattr(np, dtype) for dtype in DTYPES.values()}
    try:
        code = compile(python_of(text).strip(), "<case>", "eval")
        return eval(code, {"__builtins__": {}}, names)
    except (SyntaxError, NameError) as error:
        raise NotUnderstood(f"expression {text!r}: {error}") from error


def tensors(value: Any, dtype: Any = np.float32, lists: str = "nest") -> Any:
    """Return numbers as arrays of `dtype`, or of the dtype that they already have.

    `lists="nest"`: the outermost list, also one in a dict, is a list of arrays, and
    lists inside it are arrays. `lists="tensor"`: every list is an array.
    """
    if isinstance(value, dict):
        return {key: tensors(item, dtype, lists) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(tensors(item, dtype, lists) for item in value)
    if isinstance(value, list) and lists == "nest":
        made = []
        for item in value:  # a dtype also holds for the items behind it
            made.append(tensors(item, dtype, "tensor"))
            dtype = item.dtype if isinstance(item, np.generic) else dtype
        return made
    if isinstance(value, (np.ndarray, np.generic, distribute.IndexedSlices)):
        return value
    return array(value, dtype)


def array(value: Any, dtype: Any = np.float32) -> Any:
    """Return an array; "string" is a dtype too."""
    return np.array(value, object if dtype == "string" else dtype)


def fill(shape: int | list[int], value: Any) -> Any:
    """Return an array of float32 full of one value."""
    return np.full(shape, value, np.float32)


def slices(values: Any, indices: Any, dense_shape: Any = None) -> Any:
    """Return IndexedSlices of float32 values with int32 indices."""
    shape = None if dense_shape is None else np.array(dense_shape, np.int32)
    return distribute.IndexedSlices(
        np.array(values, np.float32), np.array(indices, np.int32), shape
    )


NAMES: dict[str, Any] = {
    "fill": fill,
    "range": range_,
    "ones": lambda shape: fill(shape, 1),
    "zeros": lambda shape: fill(shape, 0),
    "sum": np.sum,
    "constant": lambda value: np.array(value, np.float32),
    "np": np,
    "IndexedSlices": slices,
}
"""What the texts may use besides their own variables."""


def per_replica(value: Any, dtype: Any = np.float32) -> Any:
    """Return a PerReplica with an array for each of the values."""
    return distribute.PerReplica([array(part, dtype) for part in value])


def components(value: Any, dtype: Any = np.float32) -> Any:
    """Return inputs as values: {"per_replica": [...]} and the like, or a nest.

    Numbers and lists of numbers become arrays.
    """
    if isinstance(value, dict):
        kinds: dict[str, Callable[..., Any]] = {
            "per_replica": distribute.PerReplica,
            "mirrored": distribute.Mirrored,
        }
        for kind, wrap in kinds.items():
            if set(value) == {kind}:
                return wrap([array(part, dtype) for part in value[kind]])
        return {key: components(item, dtype) for key, item in value.items()}
    return array(value, dtype)
