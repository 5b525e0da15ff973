"""Variables: creation, assignment, reading, scatter; PerReplica and Mirrored values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import Case, NotUnderstood, make_strategy
from conformance.encoding import SEVERAL, VARIABLE_KINDS
from conformance.expressions import array, evaluate, per_replica
from strategy import Component, Variable, VariableAggregation, VariableSynchronization


def make(case: Case, otherwise: Any = 1.0, **fields: Any) -> Any:
    """Return the variable that a case describes, made in its strategy's scope."""
    inputs = {"initial": otherwise, **case.inputs, **fields}
    with case.strategy.scope():
        return Variable(
            array(inputs["initial"], inputs.get("dtype", np.float32)),
            synchronization=VariableSynchronization[
                inputs.get("synchronization", "ON_WRITE")
            ],
            aggregation=VariableAggregation[inputs.get("aggregation", "NONE")],
        )


def number() -> int:
    """Return the id of the replica that runs, 0 where there is none."""
    context = distribute.get_replica_context()
    return int(context.replica_id_in_sync_group or 0) if context is not None else 0


def assigned(text: Any, dtype: Any) -> Any:
    """Return the value to assign, here."""
    if not isinstance(text, str):
        return array(text, dtype)
    if text.startswith("python "):
        return evaluate(text.removeprefix("python "))
    if text.startswith("PerReplica "):
        return per_replica(evaluate(text.removeprefix("PerReplica ")), dtype)
    names = {"r": number(), "constant": lambda value: value}
    return array(evaluate(text.replace("tf.constant", "constant"), **names), dtype)


def _assign(case: Case) -> Any:
    inputs = case.inputs
    if inputs.get("context") == "other strategy's scope":
        return _in_other_scope(case)
    if inputs.get("read_value") is False:
        variable = make(case)
        with case.strategy.scope():
            variable.assign(np.float32(inputs["value"]), read_value=False)
        return [array(part) for part in variable.values]
    if "context" not in inputs:
        return _assign_in_run(case)
    variable = make(case)
    change = getattr(variable, case.api.partition(".")[2])
    dtype = inputs.get("dtype", np.float32)

    def here() -> Any:
        return change(assigned(inputs["value"], dtype))

    def in_scope() -> Any:
        with case.strategy.scope():
            return here()

    def in_update() -> Any:
        name = case.api.partition(".")[2]
        return case.strategy.extended.update(
            variable, lambda v: getattr(v, name)(assigned(inputs["value"], dtype))
        )

    places = {
        "replica": lambda: case.strategy.run(here),
        "cross": in_scope,
        "update": in_update,
        "outside": here,
    }
    returned = case.table("context", places)()
    if variable.kind not in SEVERAL and isinstance(returned, (Variable, Component)):
        returned = {"var_type": "_UnreadVariable"}
    return {
        "components": [part.read_value() for part in variable.values],
        "cross_replica_read": _read(case, variable),
        "returned": returned,
        "var_type": VARIABLE_KINDS[variable.kind],
    }


def _assign_in_run(case: Case) -> Any:
    """Return the kind of variable and what is read after an assignment in run."""
    variable = make(case)
    text = case.inputs["value"]
    case.strategy.run(lambda: variable.assign(assigned(text, np.float32)) and None)
    return [VARIABLE_KINDS[variable.kind], variable.read_value()]


def _read(case: Case, variable: Any) -> Any:
    with case.strategy.scope():
        return _or_error(variable.read_value)


def _or_error(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError:
        return {"error_type": "ValueError"}


def _in_other_scope(case: Case) -> Any:
    variable = make(case)
    with make_strategy(case.strategy_spec).scope():
        if case.api == "Variable.read_value":
            return variable.read_value()
        return variable.assign(np.float32(2))


def _creation(case: Case) -> Any:
    inputs = case.inputs
    if case.kind == "MultiWorkerMirrored":
        return _made_by_worker(case)
    if inputs.get("context") == "run":
        return _made_in_run(case)
    if inputs.get("aggregation") == "the string 'SUM'":
        with case.strategy.scope():
            return Variable(np.float32(1), aggregation="SUM")  # type: ignore[arg-type]
    if inputs.get("aggregation") == "default":
        with case.strategy.scope():
            variable = Variable(np.float32(1))
        return [
            variable.synchronization.name,
            variable.aggregation.name,
            VARIABLE_KINDS[variable.kind],
            f"{variable.name}:0",  # :0 is how a graph writes the first output
            [f"{part.name}:0" for part in variable.values],
            isinstance(variable, distribute.DistributedValues),
            isinstance(variable, np.ndarray),
        ]
    variable = make(case)
    with case.strategy.scope():
        read = variable.read_value()
        return {
            "components": [part.read_value() for part in variable.values],
            "numpy": variable.numpy(),
            "read": read,
            "tensor": np.asarray(variable),
        }


def _made_by_worker(case: Case) -> Any:
    """Return what a worker sees of a variable with initial values that differ."""
    initial = evaluate(case.inputs["initial"], task_index=case.rank)
    variable = make(case, initial=initial)
    return {
        "n_components": len(variable.values),
        "type": VARIABLE_KINDS[variable.kind],
        "value": variable.read_value(),
    }


def _made_in_run(case: Case) -> Any:
    made = []

    def replica() -> Any:
        made.append(Variable(np.float32(3)))
        return made[-1].read_value()

    read = case.strategy.run(replica)
    return {
        "read": read,
        "same_object": all(variable is made[0] for variable in made),
        "types": [VARIABLE_KINDS[variable.kind] for variable in made],
    }


def _handle(case: Case) -> Any:
    variable = make(case)
    if case.inputs["context"] == "inside scope":
        with case.strategy.scope():
            return variable.handle
    assert isinstance(variable.handle, Component)
    return "<dtype: 'resource'>"  # the dtype of all handles in TensorFlow


def _per_replica(case: Case) -> Any:
    value = per_replica([1.0, 2.0])
    text = case.inputs["expr"]
    return evaluate(text, PerReplica=value, convert_to_tensor=np.asarray, r=1)


def _mirrored(case: Case) -> Any:
    value = distribute.Mirrored([np.float32(3), np.float32(3)])
    known = {
        "[Mirrored(3,3) + 1, convert, values[0]]": lambda: [
            value + 1,
            np.asarray(value),
            value.values[0],
        ]
    }
    return case.table("expr", known)()


def _on_read(case: Case) -> Any:
    variable = make(case, synchronization="ON_READ")
    for part, value in zip(variable.values, case.inputs["components"], strict=True):
        part.assign(np.float32(value))
    run, one = case.strategy.run, np.float32(1)

    def in_scope() -> Any:
        with case.strategy.scope():
            return variable.value()

    reads = {
        "outside_add": lambda: variable + one,
        "outside_numpy": variable.numpy,
        "replica_add": lambda: run(lambda: variable + one),
        "replica_read": lambda: run(variable.read_value),
        "scope_value": in_scope,
    }
    return {name: _or_error(read) for name, read in reads.items()}


def _scatter(case: Case) -> Any:
    name = case.api.partition(".")[2]
    on_read = case.api.startswith("SyncOnRead")
    sync = "ON_READ" if on_read else "ON_WRITE"
    variable = make(case, [8.0, 2.0], synchronization=sync)
    text = case.inputs.get("delta", "IndexedSlices([2],[0])")

    def here() -> None:
        getattr(variable, name)(evaluate(text, r=number()))

    if case.inputs.get("context") == "replica":
        case.strategy.run(here)
    else:
        with case.strategy.scope():
            here()
    return [part.read_value() for part in variable.values]


def _read_value(case: Case) -> Any:
    if case.inputs.get("context") == "other strategy's scope":
        return _in_other_scope(case)
    raise NotUnderstood(f"context {case.inputs.get('context')!r}")


SCATTERS = ("add", "sub", "mul", "div", "min", "max", "update")

CASES = {
    "Variable.assign": _assign,
    "Variable.assign_add": _assign,
    "Variable.assign_sub": _assign,
    "Variable.read_value": _read_value,
    "tf.Variable": _creation,
    "DistributedVariable.handle": _handle,
    "PerReplica": _per_replica,
    "Mirrored": _mirrored,
    "SyncOnRead.read": _on_read,
    **{f"SyncOnRead.scatter_{name}": _scatter for name in SCATTERS},
    **{f"MirroredVariable.scatter_{name}": _scatter for name in SCATTERS},
}
