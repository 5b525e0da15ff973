"""Lists of shapes: the gradients of known models, or those of a file.

A file is JSON: a list of shapes, or an object with such a list as `shapes`. An entry
`{"repeat": N, "shapes": [...]}` stands for N copies of its own list.
"""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

__all__ = ["MODELS", "Shape", "ShapeList", "read_shapes", "tensors"]

Shape = tuple[int, ...]

# In the order in which each model defines its parameters.
MODELS = ("resnet50", "bert_base", "gpt2_small", "vit_base")


class ShapeList(NamedTuple):
    """The shapes of a list of arrays, and where they come from."""

    name: str
    shapes: tuple[Shape, ...]

    @property
    def elements(self) -> int:
        """The elements of all arrays together."""
        return sum(map(prod, self.shapes))


def read_shapes(text: str) -> ShapeList:
    """Return the shapes of a model of `MODELS`, or else of the file of that path.

    Raises:
        ArgumentTypeError: no such model or file, or it has no list of shapes.
    """
    known = files("collectives") / "tables" / "gradients" / f"{text}.json"
    source = known if text in MODELS else Path(text)
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
        entries = document["shapes"] if isinstance(document, dict) else document
        shapes = tuple(_expanded(entries))
    except OSError as error:
        raise ArgumentTypeError(
            f"{text!r} is no model and cannot be read as a file "
            f"({error.strerror}); models: {' '.join(MODELS)}"
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"{text!r} is no list of shapes such as [[64, 3, 7, 7], [64]]: {error!r}"
        ) from None
    if not sum(map(prod, shapes)):
        raise ArgumentTypeError(f"{text!r} holds no elements at all")
    return ShapeList(text, shapes)


def _expanded(entries: Any) -> list[Shape]:
    """Return the shapes with every repetition written out."""
    shapes: list[Shape] = []
    for entry in entries:
        if isinstance(entry, dict):
            shapes += _expanded(entry["shapes"]) * entry["repeat"]
            continue
        if not all(isinstance(n, int) and n >= 0 for n in entry):
            raise ValueError(entry)
        shapes.append(tuple(entry))
    return shapes


def tensors(flat: NDArray[Any], shapes: tuple[Shape, ...]) -> list[NDArray[Any]]:
    """Return arrays of these shapes, one after the other in a flat array."""
    arrays, start = [], 0
    for shape in shapes:
        stop = start + prod(shape)
        arrays.append(flat[start:stop].reshape(shape))
        start = stop
    return arrays
