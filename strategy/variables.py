"""Variables: one component for each replica, kept in step by a table of rules.

A component is an array that is never written into: assigning puts a new, read-only
array in its place, so what was read before keeps its values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from strategy import contexts
from strategy.indexed_slices import IndexedSlices
from strategy.placing import cast, copied, moved, on, place_of, there
from strategy.reduce_op import VariableAggregation, VariableSynchronization
from strategy.scatter import NEVER_REDUCED, SCATTERS, Scattered
from strategy.values import Array, ArrayLike, DistributedValues, local_index, plain
from strategy.variable_rules import (
    AGGREGATING,
    CROSS,
    MEAN,
    ON_READ,
    PLAIN,
    READS,
    REPLICA,
    SUM,
    UPDATE,
    WRITES,
    Change,
)

CHANGES: dict[str, Change] = {
    "assign": lambda old, new: new.copy(),
    "assign_add": np.add,
    "assign_sub": np.subtract,
    **SCATTERS,
}


class Component(ArrayLike):
    """What one local replica holds of a variable: a view that reads the latest value.

    Writing to it changes this component alone, in any context.
    """

    def __init__(self, owner: Variable, index: int) -> None:
        self.owner, self.index = owner, index

    @property
    def name(self) -> str:
        """The variable's name, with the number of the replica after the first."""
        return self.owner.name + (f"/replica_{self.index}" if self.index else "")

    def read_value(self) -> Any:
        """Return the value here, read-only."""
        return self.owner.component(self.index)

    value = read_value

    def assign(self, value: Any) -> Component:
        """Set this component."""
        return self.owner.put(self.index, CHANGES["assign"], value)

    def assign_add(self, delta: Any) -> Component:
        """Add to this component."""
        return self.owner.put(self.index, CHANGES["assign_add"], delta)

    def assign_sub(self, delta: Any) -> Component:
        """Subtract from this component."""
        return self.owner.put(self.index, CHANGES["assign_sub"], delta)

    def __repr__(self) -> str:
        return f"<component {self.name!r} of {self.read_value()!r}>"


class Variable(ArrayLike, Scattered, DistributedValues):
    """An array that a program changes, with a component for each replica.

    Inside a strategy's scope the first replica's initial value is given to all, which
    makes creation collective. `synchronization=ON_WRITE` keeps the components equal at
    every write, `ON_READ` lets replicas write their own and combines them when read
    outside a replica. `aggregation` says how. With NONE a replica writes its own
    component only: right for values that are equal on all replicas already, such as
    steps made of all-reduced gradients.

    `initial_value` may be a function. Made inside run(), a variable is made once, with
    the first replica's arguments, and is the same object on all local replicas. Raises
    `ValueError` for arguments that do not fit, `MixedStrategiesError` when used inside
    another strategy's scope.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Variable:
        """Make a new variable, or get the one that all local replicas make together."""
        replica = contexts.current().replica
        if replica is None or not contexts.has_strategy():
            return super().__new__(cls)

        def make(others: list[Any]) -> list[Variable]:
            return [cls(*args, **kwargs)] * len(others)

        made: Variable = replica.meet("creation of a variable", None, make)
        return made

    def __init__(
        self,
        initial_value: Any,
        trainable: bool = True,
        *,
        name: str = "Variable",
        dtype: DTypeLike | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
    ) -> None:
        if hasattr(self, "_components"):
            return  # made by all replicas together, in __new__
        if synchronization is VariableSynchronization.AUTO:
            synchronization = VariableSynchronization.ON_WRITE
        self.name, self.trainable = name, trainable
        self.synchronization, self.aggregation = synchronization, aggregation
        self.distribute_strategy = contexts.current().strategy
        extended = self.distribute_strategy.extended
        try:
            value = initial_value() if callable(initial_value) else initial_value
            array: Array = _owned(plain(value), dtype)
            _check(name, array.dtype, synchronization, aggregation)
        except Exception as error:
            extended.refuse(error)
        self.kind = extended.variable_kind(
            synchronization is VariableSynchronization.ON_READ
        )
        self._dtype: np.dtype[Any] = array.dtype
        self._shape: tuple[int, ...] = array.shape
        self._arrays = [_frozen(value) for value in extended.initial_values(array)]
        self._places = tuple(map(place_of, self._arrays))
        self._components = tuple(
            Component(self, index) for index in range(len(self._arrays))
        )

    @property
    def values(self) -> tuple[Component, ...]:
        """The components of the local replicas."""
        return self._components

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, which never changes."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which never changes."""
        return self._shape

    @property
    def handle(self) -> Component:
        """This replica's component; `ValueError` in cross-replica context."""
        if contexts.in_cross_replica_context():
            raise ValueError(
                f"the handle of variable {self.name!r} outside run(): each replica has "
                "its own, see values"
            )
        return self.values[self.index_here()]

    def read_value(self) -> Any:
        """Return the value here, read-only; reading ON_READ may be collective."""
        return READS[self.kind, self._where()][self.aggregation](self)

    value = read_value

    def assign(self, value: Any, read_value: bool = True) -> Any:
        """Set the value; return the new one, a Mirrored if several are held here.

        What a replica changes for itself alone comes back as its Component. A variable
        with ON_READ is read outside replicas, which may be collective, unless
        `read_value` is false.
        """
        return self._write("assign", value, read_value)

    def assign_add(self, delta: Any, read_value: bool = True) -> Any:
        """Add to the value; as `assign`."""
        return self._write("assign_add", delta, read_value)

    def assign_sub(self, delta: Any, read_value: bool = True) -> Any:
        """Subtract from the value; as `assign`."""
        return self._write("assign_sub", delta, read_value)

    def __repr__(self) -> str:
        return (
            f"<Variable {self.name!r} shape={self.shape} dtype={self.dtype} "
            f"{self.kind} {self.aggregation.name} values={self._arrays!r}>"
        )

    def component(self, index: int) -> Any:
        """Return the array of one local replica, read-only."""
        return self._arrays[index]

    def index_here(self) -> int:
        """Return the component that the caller's replica or update is at."""
        return 0 if self.kind in (PLAIN, AGGREGATING) else local_index()

    def put(self, index: int, change: Change, value: Any) -> Component:
        """Change one component and return it."""
        old, place = self._arrays[index], self._places[index]
        new = moved(self.prepared(value), place)
        self._arrays[index] = _frozen(there(place, change, old, new))
        return Component(self, index)

    def prepared(self, value: Any) -> Any:
        """Return `value` in this variable's dtype, after checking its shape."""
        if isinstance(value, IndexedSlices):
            return self._prepared_slices(value)
        if type(value) is int and self.dtype.kind == "u":
            value = np.array(value, self.dtype)  # a Python int would be an int64
        array = plain(value)
        if array.shape != self.shape:
            raise ValueError(
                f"variable {self.name!r} has shape {self.shape}, got {array.shape}"
            )
        return cast(array, self._castable(array.dtype))

    def _prepared_slices(self, delta: IndexedSlices) -> IndexedSlices:
        rows, found = self.shape[1:], delta.values.shape[1:]
        with on(place_of(delta)):
            inside = not delta.indices.size or (
                self.shape
                and -1 < delta.indices.min() <= delta.indices.max()
                and delta.indices.max() < self.shape[0]
            )
        if rows != found or not inside:
            raise ValueError(
                f"variable {self.name!r} has shape {self.shape}; got rows of shape "
                f"{found} at {delta.indices.tolist()}"
            )
        values = cast(delta.values, self._castable(delta.dtype))
        return IndexedSlices(values, delta.indices, delta.dense_shape)

    def _castable(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        if not np.can_cast(dtype, self.dtype, "same_kind"):
            raise TypeError(
                f"variable {self.name!r} has dtype {self.dtype}, got {dtype}"
            )
        return self.dtype

    def _where(self) -> str:
        """Return the context of the caller, as the tables name it."""
        if self.kind == PLAIN:
            return UPDATE  # the one component is read and written in all contexts
        contexts.require_same(self.distribute_strategy)
        mode = contexts.current()
        if mode.strategy is not self.distribute_strategy or mode.replica is None:
            return CROSS if mode.update_index is None else UPDATE
        return REPLICA

    def _write(self, name: str, value: Any, read_value: bool = True) -> Any:
        rule = WRITES[self.kind, self._where()][self.aggregation]
        result = rule(self, name, CHANGES[name], value)
        if result is self and self.kind == ON_READ and read_value:
            return self.read_value()
        return result

    def _scatter(self, name: str, delta: IndexedSlices) -> Any:
        if not isinstance(delta, IndexedSlices):
            raise TypeError(f"{name} of {delta!r}; wanted IndexedSlices")
        refused = self.kind == ON_READ or (
            name in NEVER_REDUCED
            and self.kind != PLAIN
            and self.aggregation in (SUM, MEAN)
        )
        if refused:
            raise NotImplementedError(
                f"{name} of variable {self.name!r} with synchronization "
                f"{self.synchronization.name} and aggregation {self.aggregation.name}"
            )
        return self._write(name, delta)


def _owned(value: Any, dtype: DTypeLike | None) -> Any:
    """Return an array of its own, where it is."""
    if place_of(value) is None:
        return np.array(value, dtype)
    return cast(copied(value, place_of(value)), np.dtype(dtype or value.dtype))


def _frozen(value: Any) -> Any:
    """Return a component's array with writing into it forbidden, if that can be."""
    if place_of(value) is not None:
        return value  # memory of a GPU has no such mark
    array = np.asarray(value)
    array.flags.writeable = False
    return array


def _check(
    name: str,
    dtype: np.dtype[Any],
    synchronization: VariableSynchronization,
    aggregation: VariableAggregation,
) -> None:
    """Refuse arguments that no variable can have."""
    for given, kind in (
        (synchronization, VariableSynchronization),
        (aggregation, VariableAggregation),
    ):
        if not isinstance(given, kind):
            raise ValueError(
                f"variable {name!r}: {given!r} is not a {kind.__name__}; "
                f"known: {' '.join(kind.__members__)}"
            )
    if synchronization is VariableSynchronization.NONE:
        raise ValueError(f"variable {name!r}: synchronization NONE is not supported")
    if (
        aggregation is VariableAggregation.MEAN and dtype.kind not in "fcV"
    ):  # V: bfloat16 and its kin
        raise ValueError(
            f"variable {name!r} has dtype {dtype}: aggregation MEAN needs floats"
        )
