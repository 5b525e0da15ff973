"""What the elements of a dataset look like, before most of them exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strategy import nest
from strategy.data.sources import Generated
from strategy.data.stages import Batch

if TYPE_CHECKING:
    from strategy.data.dataset import Dataset


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of an array; None is a length that may differ by element."""

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def of_any_rows(self) -> TensorSpec:
        """Return the same with any number of rows."""
        return TensorSpec((None, *self.shape[1:]), self.dtype)


def shapes_are_known(dataset: Dataset) -> bool:
    """Return whether every element has the shapes of the first one.

    Not so for a generator's elements, and for batches the last of which may be short.
    """
    if isinstance(dataset.source, Generated):
        return False
    batches = [stage for stage in dataset.stages if isinstance(stage, Batch)]
    return all(batch.drop_remainder for batch in batches)


def spec_of(dataset: Dataset) -> Any:
    """Return a nest of TensorSpecs, made from the first element.

    Raises `ValueError` where there is none.
    """
    for element in dataset.iteration(0):
        specs = nest.map_structure(_leaf_spec, element)
        if shapes_are_known(dataset):
            return specs
        return nest.map_structure(
            lambda spec: spec.of_any_rows() if spec.shape else spec, specs
        )
    raise ValueError(f"{dataset!r} is empty: nobody knows what its elements look like")


def _leaf_spec(leaf: Any) -> TensorSpec:
    array = np.asarray(leaf)
    return TensorSpec(array.shape, array.dtype)
