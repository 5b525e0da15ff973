"""Values that differ by replica, and how they are put together and taken apart."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike

from strategy import contexts, nest
from strategy.placing import first_place, on_host, seen, there

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class ValueContext:
    """What `experimental_distribute_values_from_function` tells its function."""

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1


class DistributedValues:
    """One value for each replica of this process, in order."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = tuple(values)

    @property
    def values(self) -> tuple[Any, ...]:
        """The components."""
        return self._values

    def __repr__(self) -> str:
        lines = [f"  {index}: {value!r}" for index, value in enumerate(self.values)]
        return f"{type(self).__name__}:{{\n" + ",\n".join(lines) + "\n}"


class PerReplica(DistributedValues):
    """A value that may differ between replicas; an array only inside a replica."""

    __array_ufunc__ = None  # no arithmetic: which component would be meant?

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> Array:
        replica = contexts.current().replica
        if replica is None or not contexts.has_strategy():
            raise ValueError(
                "a PerReplica value is an array only inside run(); elsewhere use "
                "strategy.reduce, gather or experimental_local_results"
            )
        return converted(self.values[replica.local_index], dtype, copy)


class ArrayLike(NDArrayOperatorsMixin):
    """Arithmetic and NumPy functions for an object that stands for an array.

    Subclasses say which array in `read_value`. The result is a plain array.
    """

    def read_value(self) -> Any:
        """Return the array that this object stands for in the current context."""
        raise NotImplementedError

    def numpy(self) -> Array:
        """Return the value in the host's memory, read-only."""
        array: Array = on_host(self.read_value())
        return array

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> Array:
        return converted(self.read_value(), dtype, copy)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        given, named = nest.map_structure(_behind, (list(args), dict(kwargs)))
        place = first_place(nest.flatten([given, named]))
        return there(place, func, *given, **named)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        if any(isinstance(out, ArrayLike) for out in kwargs.get("out", ())):
            raise TypeError(
                f"{type(self).__name__} cannot be changed by an operator such as +=: "
                "use assign, assign_add or assign_sub"
            )
        # Python numbers stay numbers: an array of one would widen a float32 operand.
        operands = list(map(_behind, inputs))
        return there(first_place(operands), getattr(ufunc, method), *operands, **kwargs)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""
        dtype: np.dtype[Any] = self.read_value().dtype
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.read_value().shape)

    @property
    def T(self) -> Any:
        """The array with its axes reversed."""
        return self.read_value().T

    @property
    def ndim(self) -> int:
        """The number of axes of the array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return math.prod(self.shape)

    def tolist(self) -> Any:
        """Return the array as nested lists of Python numbers."""
        return self.numpy().tolist()

    def __getitem__(self, key: Any) -> Any:
        return self.read_value()[key]

    def __len__(self) -> int:
        return len(self.read_value())

    def __float__(self) -> float:
        return float(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __bool__(self) -> bool:
        return bool(self.numpy())


def _behind(value: Any) -> Any:
    return value.read_value() if isinstance(value, ArrayLike) else value


class Mirrored(ArrayLike, DistributedValues):
    """A value that is the same on all replicas, with a component for each."""

    def read_value(self) -> Any:
        """Return this replica's component, the first one outside replicas."""
        return self.values[local_index()]


def local_index() -> int:
    """Return which local component the current context reads."""
    mode = contexts.current()
    if mode.update_index is not None:
        return mode.update_index
    return 0 if mode.replica is None else mode.replica.local_index


def plain(value: Any) -> Any:
    """Return the array behind `value`, on a GPU one of CuPy's.

    Numbers become arrays by NumPy's rules.
    """
    if type(value) is np.ndarray:  # nearly always
        return value
    if isinstance(value, ArrayLike):
        return value.read_value()
    if isinstance(value, np.generic) or not hasattr(value, "dtype"):
        return np.asarray(value)
    return seen(value)


def converted(value: Any, dtype: DTypeLike | None, copy: bool | None) -> Array:
    """Return what `__array__` must: an array of `dtype`, copied only if need be."""
    array = np.asarray(value, dtype)
    if copy is False and array is not value:
        raise ValueError(f"dtype {dtype} cannot be had without a copy")
    return array.copy() if copy and array is value else array


def regroup(values: Sequence[Any], wrap: Callable[[tuple[Any, ...]], Any]) -> Any:
    """Return one nest from each replica's; `wrap` holds leaves that differ.

    A leaf that is the same object on all replicas comes back bare, so with one
    replica everything does; a variable's components come back as the variable. Raises
    `StructureError` if the nests are not alike.
    """
    if len(values) == 1:
        return values[0]

    def leaf(*components: Any) -> Any:
        first = components[0]
        if all(component is first for component in components):
            return first
        owner = getattr(first, "owner", None)
        if isinstance(owner, DistributedValues) and all(
            map(operator.is_, components, owner.values)
        ):
            return owner
        return wrap(components)

    return nest.map_structure(leaf, *values)


def select(index: int, structure: Any) -> Any:
    """Return `structure` as one local replica sees it; variables stay whole."""
    if is_per_component(structure):
        return structure.values[index]
    return nest.map_structure(
        lambda leaf: leaf.values[index] if is_per_component(leaf) else leaf, structure
    )


def is_per_component(leaf: Any) -> bool:
    """Return whether a replica sees a component of `leaf` instead of all of it."""
    return isinstance(leaf, (PerReplica, Mirrored))
