"""Variables: one component for each replica, kept in step by a table of rules.

A component is an array that is never written into: assigning puts a new, read-only
array in its place, so what was read before keeps its values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from strategy import contexts
from strategy.reduce_op import VariableAggregation, VariableSynchronization
from strategy.values import ArrayLike, DistributedValues, local_index, plain
from strategy.variable_rules import (
    CHANGES,
    CROSS,
    PLAIN,
    READS,
    REPLICA,
    UPDATE,
    WRITES,
)


class Variable(ArrayLike, DistributedValues):
    """An array that a program changes, with a component for each replica.

    Inside a strategy's scope the first replica's initial value is given to all, which
    makes creation collective. `synchronization=ON_WRITE` keeps the components equal at
    every write, `ON_READ` lets replicas write their own and combines them when read
    outside a replica. `aggregation` says how. With NONE a replica writes its own
    component only: right for values that are equal on all replicas already, such as
    steps made of all-reduced gradients.

    `initial_value` may be a function. Raises `ValueError` for arguments that do not
    fit, `MixedStrategiesError` when used inside another strategy's scope.
    """

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
        if synchronization is VariableSynchronization.AUTO:
            synchronization = VariableSynchronization.ON_WRITE
        value = initial_value() if callable(initial_value) else initial_value
        array = np.array(plain(value), dtype)
        _check(name, array.dtype, synchronization, aggregation)
        self.name, self.trainable = name, trainable
        self.synchronization, self.aggregation = synchronization, aggregation
        self.distribute_strategy = contexts.current().strategy
        extended = self.distribute_strategy.extended
        on_read = synchronization is VariableSynchronization.ON_READ
        self.kind = extended.variable_kind(on_read)
        self._dtype, self._shape = array.dtype, array.shape
        super().__init__([_frozen(value) for value in extended.initial_values(array)])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, which never changes."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which never changes."""
        return self._shape

    def read_value(self) -> Any:
        """Return the value here, read-only; reading ON_READ may be collective."""
        return READS[self.kind, self._where()][self.aggregation](self)

    value = read_value
    numpy = read_value

    def assign(self, value: Any) -> Any:
        """Set the value; return the new one, a Mirrored if several are held here."""
        return self._write("assign", value)

    def assign_add(self, delta: Any) -> Any:
        """Add to the value; return the new one."""
        return self._write("assign_add", delta)

    def assign_sub(self, delta: Any) -> Any:
        """Subtract from the value; return the new one."""
        return self._write("assign_sub", delta)

    def __repr__(self) -> str:
        return (
            f"<Variable {self.name!r} shape={self.shape} dtype={self.dtype} "
            f"{self.kind} {self.aggregation.name} values={self.values!r}>"
        )

    def _where(self) -> str:
        """Return the context of the caller, as the tables name it."""
        if self.kind == PLAIN:
            return UPDATE  # the one component is read and written in all contexts
        contexts.require_same(self.distribute_strategy)
        mode = contexts.current()
        if mode.strategy is not self.distribute_strategy or mode.replica is None:
            return CROSS if mode.update_index is None else UPDATE
        return REPLICA

    def _write(self, change: str, value: Any) -> Any:
        rule = WRITES[self.kind, self._where()][self.aggregation]
        return rule(self, change, value)

    def index_here(self) -> int:
        """Return the component that the caller's replica or update is at."""
        return 0 if self.kind == PLAIN else local_index()

    def put(self, index: int, change: str, value: Any) -> Any:
        """Change one component and return its new value."""
        new = _frozen(CHANGES[change](self._values[index], self.fitted(value)))
        values = self._values
        self._values = (*values[:index], new, *values[index + 1 :])
        return new

    def fitted(self, value: Any) -> Any:
        """Return `value` in this variable's dtype, after checking its shape."""
        array = plain(value)
        if array.shape != self.shape:
            raise ValueError(
                f"variable {self.name!r} has shape {self.shape}, got {array.shape}"
            )
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise TypeError(
                f"variable {self.name!r} has dtype {self.dtype}, got {array.dtype}"
            )
        return array.astype(self.dtype, copy=False)


def _frozen(value: Any) -> Any:
    """Return a component's array with writing into it forbidden."""
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
    if aggregation is VariableAggregation.MEAN and dtype.kind not in "fc":
        raise ValueError(
            f"variable {name!r} has dtype {dtype}: aggregation MEAN needs floats"
        )
