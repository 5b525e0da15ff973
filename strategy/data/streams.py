"""What flows through a pipeline: elements that are only made when somebody looks.

Many stages (shuffle, take, skip, shard) move elements without looking at them. They
move *tokens*: for rows of an array the token is the row's number, so that a shuffled
batch is made by one look into the array, and a rank that keeps a part of a batch never
touches the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strategy import nest
from strategy.errors import StructureError


def as_array(value: Any) -> Any:
    """Return an array on the device where it is; numbers become arrays of NumPy."""
    on_device = hasattr(value, "__cuda_array_interface__")
    return value if on_device else np.asarray(value)


def stack(elements: Sequence[Any]) -> Any:
    """Join equal nests of arrays or numbers along a new first axis.

    Raises `StructureError` where structures or shapes differ.
    """
    if isinstance(elements[0], (dict, list, tuple)):
        return nest.map_structure(lambda *leaves: _stacked(leaves), *elements)
    return _stacked(elements)


def _stacked(values: Sequence[Any]) -> Any:
    shapes = {np.shape(value) for value in values}
    if len(shapes) > 1:
        raise StructureError(
            f"a batch of elements of shapes {sorted(shapes)}; wanted one shape"
        )
    return np.stack(values)


def itself(token: Any) -> Any:
    """Return the token, which is the element where there is nothing to save."""
    return token


@dataclass(frozen=True)
class Stream:
    """Tokens, one for each element, and how to look at them."""

    tokens: Iterator[Any]
    element: Callable[[Any], Any] = itself
    """token -> element"""
    batch: Callable[[list[Any]], Any] = stack
    """tokens -> their elements, joined along a new first axis"""

    def __iter__(self) -> Iterator[Any]:
        return map(self.element, self.tokens)


class Batched(Stream):
    """A stream of batches not looked at: each token is a list of the rows' tokens."""
