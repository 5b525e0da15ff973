"""What an assignment to a variable and a read of one do: the tables.

It depends on three things: the kind of variable, the context of the call, and the
aggregation. WRITES and READS have a row for each kind and context, and in it a rule
for each aggregation. A rule is a function of a few lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strategy import contexts
from strategy.placing import in_use, moved, on, place_of
from strategy.reduce_op import ReduceOp, VariableAggregation
from strategy.values import Mirrored, is_per_component, plain

if TYPE_CHECKING:
    from strategy.variables import Variable

NONE, SUM, MEAN, FIRST = VariableAggregation
REDUCE_OPS = {SUM: ReduceOp.SUM, MEAN: ReduceOp.MEAN}

# Kinds. A strategy says which one it makes. MIRRORED and ON_READ have a component for
# each local replica; AGGREGATING has one that several replicas share; PLAIN has one and
# nothing to keep in step, whatever the aggregation.
MIRRORED, ON_READ, AGGREGATING, PLAIN = "mirrored", "on_read", "aggregating", "plain"
# Contexts.
REPLICA, CROSS, UPDATE = "replica", "cross", "update"

# A change is what becomes of the old array and the assigned value.
Change = Callable[[Any, Any], Any]
Write = Callable[["Variable", str, Change, Any], Any]
Read = Callable[["Variable"], Any]


def _write_own(variable: Variable, name: str, change: Change, value: Any) -> Any:
    """Change the component of this replica, or the one an update is at."""
    return variable.put(variable.index_here(), change, value)


def _write_only(variable: Variable, name: str, change: Change, value: Any) -> Any:
    """Change the one component that there is."""
    parts = value.values if is_per_component(value) else [value]
    variable.put(0, change, parts[0])
    return variable


def _write_every(variable: Variable, name: str, change: Change, value: Any) -> Any:
    """Change each component by the value, or by its own part of a PerReplica."""
    count = len(variable.values)
    parts = value.values if is_per_component(value) else [value] * count
    new = [
        variable.put(index, change, part).read_value()
        for index, part in enumerate(parts)
    ]
    return new[0] if count == 1 else Mirrored(new)


def _write_reduced(variable: Variable, name: str, change: Change, value: Any) -> Any:
    """Combine all replicas' values and change every component by the result."""
    op = REDUCE_OPS[variable.aggregation]
    return _write_together(
        variable, name, change, value, lambda extended, all_: extended.reduced(op, all_)
    )


def _write_first(variable: Variable, name: str, change: Change, value: Any) -> Any:
    """Change every component by the value that the first replica has."""
    return _write_together(
        variable, name, change, value, lambda extended, all_: extended.first(all_)
    )


def _write_together(
    variable: Variable,
    name: str,
    change: Change,
    value: Any,
    combine: Callable[[contexts.Extended, list[Any]], Any],
) -> Any:
    """Meet the other replicas, and change every component by what is made of all."""
    replica = contexts.current().replica
    assert replica is not None  # the tables have these rules in REPLICA rows only
    extended = variable.distribute_strategy.extended

    def write(values: list[Any]) -> list[Any]:
        for given in values:
            if isinstance(given, Exception):
                extended.refuse(given)
        total = combine(extended, values)
        if variable.kind == AGGREGATING:
            return [_write_only(variable, name, change, total)] * len(values)
        _write_every(variable, name, change, total)
        return [part.read_value().view() for part in variable.values]

    try:
        given = variable.prepared(value)
    except Exception as error:  # the other ranks must hear of it
        given = error
    return replica.meet(f"{name} of {variable.name}", given, write)


def _write_shares(variable: Variable, name: str, change: Change, value: Any) -> Any:
    """Set each component to a share, so that their sum is the value."""
    if name != "assign":
        raise ValueError(
            f"variable {variable.name!r} sums its replicas when read: {name} outside "
            "a replica has no meaning; use assign"
        )
    for index, share in enumerate(shares(variable, plain(value))):
        variable.put(index, change, share)
    return variable


def shares(variable: Variable, value: Any) -> list[Any]:
    """Return a part of `value` for each local component of a variable that sums.

    Of integers the remainder goes to the first replicas, one to each: the sum is the
    value again.
    """
    extended = variable.distribute_strategy.extended
    count = extended.num_replicas_in_sync
    with on(place_of(value)):
        if variable.dtype.kind not in "iu":
            share = (value / count).astype(variable.dtype)
            return [share] * len(extended.replica_ids)
        whole, rest = value // count, value % count
        return [
            (whole + (rest > int(number))).astype(variable.dtype)
            for number in extended.replica_ids
        ]


def _write_every_on_read(
    variable: Variable, name: str, change: Change, value: Any
) -> Any:
    """Change each component by the value."""
    _write_every(variable, name, change, value)
    return variable


def _write_assigned_on_read(
    variable: Variable, name: str, change: Change, value: Any
) -> Any:
    """Set each component; adding to what cannot be read is refused."""
    if name != "assign":
        return _read_nothing(variable)
    return _write_every_on_read(variable, name, change, value)


def _write_nothing(variable: Variable, name: str, change: Change, value: Any) -> Any:
    raise ValueError(
        f"variable {variable.name!r} has one copy for all replicas and aggregation "
        f"NONE: {name} inside run() needs SUM, MEAN or ONLY_FIRST_REPLICA"
    )


def _read_own(variable: Variable) -> Any:
    """Return the component of this replica, the first one outside replicas."""
    return variable.component(variable.index_here())


def _read_only(variable: Variable) -> Any:
    """Return the one component that there is, brought to where the replica is."""
    value = variable.component(0)
    if not in_use():
        return value
    mode = contexts.current()
    places = mode.strategy.extended.places
    if mode.replica is None or not places:
        return value
    return moved(value, places[mode.replica.local_index])


def _read_reduced(variable: Variable) -> Any:
    """Combine the components of all replicas: a collective call."""
    op = REDUCE_OPS[variable.aggregation]
    extended = variable.distribute_strategy.extended
    return extended.reduced(op, [part.read_value() for part in variable.values])


def _read_first(variable: Variable) -> Any:
    """Return the first of all replicas' component: a collective call."""
    extended = variable.distribute_strategy.extended
    return extended.first([part.read_value() for part in variable.values])


def _read_nothing(variable: Variable) -> Any:
    raise ValueError(
        f"variable {variable.name!r} has aggregation NONE: its replicas' values cannot "
        "be combined outside run()"
    )


def _all(rule: Any) -> dict[VariableAggregation, Any]:
    return dict.fromkeys(VariableAggregation, rule)


_REDUCING = {SUM: _write_reduced, MEAN: _write_reduced, FIRST: _write_first}

WRITES: dict[tuple[str, str], dict[VariableAggregation, Write]] = {
    (MIRRORED, REPLICA): {NONE: _write_own, **_REDUCING},
    (MIRRORED, CROSS): _all(_write_every),
    (MIRRORED, UPDATE): _all(_write_own),
    (ON_READ, REPLICA): _all(_write_own),
    (ON_READ, CROSS): {
        NONE: _write_assigned_on_read,
        SUM: _write_shares,
        MEAN: _write_every_on_read,
        FIRST: _write_every_on_read,
    },
    (ON_READ, UPDATE): _all(_write_own),
    (AGGREGATING, REPLICA): {NONE: _write_nothing, **_REDUCING},
    (AGGREGATING, CROSS): _all(_write_only),
    (AGGREGATING, UPDATE): _all(_write_only),
    (PLAIN, UPDATE): _all(_write_only),
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
        FIRST: _read_first,
    },
    (ON_READ, UPDATE): _all(_read_own),
    (AGGREGATING, REPLICA): _all(_read_only),
    (AGGREGATING, CROSS): _all(_read_only),
    (AGGREGATING, UPDATE): _all(_read_only),
    (PLAIN, UPDATE): _all(_read_only),
}
