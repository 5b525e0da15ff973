"""What an assignment to a variable and a read of one do: the tables.

It depends on three things: the kind of variable, the context of the call, and the
aggregation. WRITES and READS have a row for each kind and context, and in it a rule
for each aggregation. A rule is a function of a few lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from strategy import contexts
from strategy.reduce_op import ReduceOp, VariableAggregation
from strategy.values import Mirrored, PerReplica, is_per_component, plain, regroup

if TYPE_CHECKING:
    from strategy.variables import Variable

NONE, SUM, MEAN, FIRST = VariableAggregation
REDUCE_OPS = {SUM: ReduceOp.SUM, MEAN: ReduceOp.MEAN}

# Kinds. A strategy says which one it makes; `plain` means one component and nothing
# to keep in step, whatever the aggregation.
MIRRORED, ON_READ, PLAIN = "mirrored", "on_read", "plain"
# Contexts.
REPLICA, CROSS, UPDATE = "replica", "cross", "update"

Write = Callable[["Variable", str, Any], Any]
Read = Callable[["Variable"], Any]

CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "assign": lambda old, new: new.copy(),
    "assign_add": np.add,
    "assign_sub": np.subtract,
}


def _write_own(variable: Variable, change: str, value: Any) -> Any:
    """Change the component of this replica, or the one an update is at."""
    return variable.put(variable.index_here(), change, value)


def _write_every(variable: Variable, change: str, value: Any) -> Any:
    """Change each component by the value, or by its own part of a PerReplica."""
    parts = value.values if is_per_component(value) else [value] * len(variable.values)
    new = [variable.put(index, change, part) for index, part in enumerate(parts)]
    return regroup(new, Mirrored)


def _write_reduced(variable: Variable, change: str, value: Any) -> Any:
    """Combine all replicas' values and change every component by the result."""
    op = REDUCE_OPS[variable.aggregation]

    def merge(strategy: contexts.Strategy, values: Any) -> Any:
        (total,) = strategy.extended.reduce_values(op, [values])
        return _write_every(variable, change, total)

    return _merged(merge, variable.fitted(value))


def _write_first(variable: Variable, change: str, value: Any) -> Any:
    """Change every component by the value that the first replica has."""

    def merge(strategy: contexts.Strategy, values: Any) -> Any:
        return _write_every(variable, change, strategy.extended.first_to_all(values))

    return _merged(merge, variable.fitted(value))


def _write_shares(variable: Variable, change: str, value: Any) -> Any:
    """Set each component to an equal share, so that their sum is the value."""
    if change != "assign":
        raise ValueError(
            f"variable {variable.name!r} sums its replicas when read: {change} outside "
            "a replica has no meaning; use assign"
        )
    share = plain(value) / variable.distribute_strategy.num_replicas_in_sync
    return _write_every(variable, change, share.astype(variable.dtype))


def _read_own(variable: Variable) -> Any:
    """Return the component of this replica, the first one outside replicas."""
    return variable.values[variable.index_here()]


def _read_reduced(variable: Variable) -> Any:
    """Combine the components of all replicas: a collective call."""
    op = REDUCE_OPS[variable.aggregation]
    strategy = variable.distribute_strategy
    with strategy.scope():
        return strategy.extended.reduce_values(op, [PerReplica(variable.values)])[0]


def _read_nothing(variable: Variable) -> Any:
    raise ValueError(
        f"variable {variable.name!r} has aggregation NONE: its replicas' values cannot "
        "be combined outside run()"
    )


def _all(rule: Any) -> dict[VariableAggregation, Any]:
    return dict.fromkeys(VariableAggregation, rule)


WRITES: dict[tuple[str, str], dict[VariableAggregation, Write]] = {
    (MIRRORED, REPLICA): {
        NONE: _write_own,
        SUM: _write_reduced,
        MEAN: _write_reduced,
        FIRST: _write_first,
    },
    (MIRRORED, CROSS): _all(_write_every),
    (MIRRORED, UPDATE): _all(_write_own),
    (ON_READ, REPLICA): _all(_write_own),
    (ON_READ, CROSS): {**_all(_write_every), SUM: _write_shares},
    (ON_READ, UPDATE): _all(_write_own),
    (PLAIN, UPDATE): _all(_write_own),
}

READS: dict[tuple[str, str], dict[VariableAggregation, Read]] = {
    (MIRRORED, REPLICA): _all(_read_own),
    (MIRRORED, CROSS): _all(_read_own),
    (MIRRORED, UPDATE): _all(_read_own),
    (ON_READ, REPLICA): _all(_read_own),
    (ON_READ, CROSS): {
        NONE: _read_nothing,
        SUM: _read_reduced,
        MEAN: _read_reduced,
        FIRST: _read_own,
    },
    (ON_READ, UPDATE): _all(_read_own),
    (PLAIN, UPDATE): _all(_read_own),
}


def _merged(merge: Callable[..., Any], value: Any) -> Any:
    """Call `merge` once for all replicas, with the values of all of them."""
    replica = contexts.current().replica
    assert replica is not None  # the tables have these rules in REPLICA rows only
    return replica.merge_call(merge, args=(value,))
