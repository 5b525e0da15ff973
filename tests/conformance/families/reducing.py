"""Strategy.reduce, gather, local results and values from a function."""

from __future__ import annotations

from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import Case, NotUnderstood
from conformance.expressions import array, components, evaluate, per_replica, slices
from strategy import VariableAggregation


def _value(case: Case) -> Any:
    """Return the value to reduce or gather: one of several ways to give it."""
    inputs, dtype = case.inputs, case.inputs.get("dtype", np.float32)
    if "per_replica" in inputs:
        given = inputs["per_replica"]
        if isinstance(given, dict):  # a nest, with a list for each leaf
            return {key: per_replica(parts, dtype) for key, parts in given.items()}
        return per_replica(given, dtype)
    if "mirrored" in inputs:
        return distribute.Mirrored([array(part, dtype) for part in inputs["mirrored"]])
    value = inputs.get("value", [1.0, 2.0])
    if isinstance(value, str):
        return _named_value(case, value)
    return array(value, dtype)


def _named_value(case: Case, text: str) -> Any:
    if text == "IndexedSlices":
        return slices([[1.0]], [0], [3, 1])
    if text.startswith("python "):
        return evaluate(text.removeprefix("python "))
    words = text.split()
    kinds = {"MirroredVariable": "ON_WRITE", "SyncOnRead": "ON_READ"}
    if words[0] in kinds:
        aggregation = words[2] if len(words) > 2 else "NONE"
        with case.strategy.scope():
            variable = distribute.Variable(
                np.float32(1),
                synchronization=distribute.VariableSynchronization[kinds[words[0]]],
                aggregation=VariableAggregation[aggregation],
            )
        if len(words) > 1:
            for part, value in zip(variable.values, evaluate(words[1]), strict=True):
                part.assign(np.float32(value))
        return variable
    raise NotUnderstood(f"value {text!r}")


def _reduce(case: Case, op: Any = None) -> Any:
    axis = case.inputs.get("axis")
    if case.inputs.get("axis_is_tuple"):
        axis = tuple(axis)
    value = _value(case)
    if op is not None:
        return case.strategy.reduce(op, value, axis)
    if "ops" in case.inputs:
        return [case.strategy.reduce(op, value, axis) for op in case.inputs["ops"]]
    return case.strategy.reduce(case.inputs.get("op", "SUM"), value, axis)


def _reduce_by_aggregation(case: Case) -> Any:
    """Reduce with the namesake of the op in the enum for variables.

    What such a case gives as its op reads the same as a `ReduceOp`.
    """
    members = VariableAggregation.__members__
    if case.inputs.get("op") not in members:
        raise NotUnderstood("the op")
    return _reduce(case, members[case.inputs["op"]])


def _gather(case: Case) -> Any:
    return case.strategy.gather(_value(case), case.inputs.get("axis", 0))


def _local_results(case: Case) -> Any:
    inputs = case.inputs
    given = inputs.get("value", inputs)
    if isinstance(given, str):
        return case.strategy.experimental_local_results(_named_value(case, given))
    return case.strategy.experimental_local_results(components(given))


def _values_from_function(case: Case) -> Any:
    text = case.inputs["fn"]

    def value_fn(context: Any) -> Any:
        number = context.replica_id_in_sync_group
        value = evaluate(
            text.replace("ctx.", ""),
            replica_id_in_sync_group=number,
            num_replicas_in_sync=context.num_replicas_in_sync,
            id=number,
            n=context.num_replicas_in_sync,
        )
        return np.float32(value) if isinstance(value, float) else value

    return case.strategy.experimental_distribute_values_from_function(value_fn)


CASES = {
    "Strategy.reduce": [_reduce, _reduce_by_aggregation],
    "Strategy.gather": _gather,
    "Strategy.experimental_local_results": _local_results,
    "Strategy.experimental_distribute_values_from_function": _values_from_function,
}
