"""The cases of two processes: each worker's own result is what is compared."""

from __future__ import annotations

import copy
import dataclasses
import re
import time
from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import Case, NotUnderstood
from conformance.expressions import array, evaluate, per_replica
from conformance.families import replicas, running, variables


def _mine(case: Case) -> Any:
    """Return this worker's value: its part of a list, or a plain one."""
    inputs, dtype = case.inputs, case.inputs.get("dtype", np.float32)
    if "per_replica" in inputs:
        parts = inputs["per_replica"]
        if parts and isinstance(parts[0], list) and isinstance(parts[0][0], str):
            dtype = "string"
        return per_replica([parts[case.rank]], dtype)
    names = {"task_index": case.rank, "r": case.rank}
    for key in ("plain_tensor", "plain"):
        if key in inputs:
            given = inputs[key]
            value = evaluate(given, **names) if isinstance(given, str) else given
            return array(value, dtype)
    return replicas.value_of(inputs["value"], case.rank, "nest")


def _facts(case: Case) -> Any:
    strategy, resolver = case.strategy, case.strategy.cluster_resolver
    extended = strategy.extended
    return {
        "between_graph": extended.experimental_between_graph,
        "n": strategy.num_replicas_in_sync,
        "should_checkpoint": extended.should_checkpoint,
        "should_save_summary": extended.should_save_summary,
        "task": [resolver.task_type, resolver.task_id],
        "worker_devices": list(extended.worker_devices),
    }


def _run(case: Case) -> Any:
    return case.strategy.run(running.returning(case.inputs["fn"]))


def _local_results(case: Case) -> Any:
    found = re.fullmatch(r"run\((.*)\)", case.inputs["value"])
    if found is None:
        raise NotUnderstood(f"value {case.inputs['value']!r}")
    result = case.strategy.run(running.returning(found[1]))
    return case.strategy.experimental_local_results(result)


def _reduce(case: Case) -> Any:
    op = case.inputs.get("op", "SUM")
    return case.strategy.reduce(op, _mine(case), case.inputs.get("axis"))


def _reduce_to(case: Case) -> Any:
    value, op = _mine(case), case.inputs.get("op", "SUM")
    return case.strategy.extended.reduce_to(op, value, value)


def _batch_reduce_to(case: Case) -> Any:
    parts = case.inputs["per_replica"]
    values = [per_replica([each[case.rank]]) for each in parts]
    pairs = [(value, value) for value in values]
    return case.strategy.extended.batch_reduce_to(case.inputs["op"], pairs)


def _gather(case: Case) -> Any:
    return case.strategy.gather(_mine(case), case.inputs.get("axis", 0))


def _all_reduce(case: Case) -> Any:
    """Run what has a value, with SUM, and the cases of workers that do not come."""
    if "who" in case.inputs:
        return _only_the_first(case)
    if "after" in case.inputs:
        return _after_a_timeout(case)
    return _all_reduce_by("SUM", case)


def _all_reduce_mean(case: Case) -> Any:
    """Run what has a value with MEAN: the cases do not say which op was used."""
    if "value" not in case.inputs:
        raise NotUnderstood("no value")
    return _all_reduce_by("MEAN", case)


def _all_reduce_by(op: str, case: Case) -> Any:
    inputs = {"op": op, **case.inputs}
    return replicas.all_reduce(dataclasses.replace(case, inputs=inputs))


def _ones(options: Any = None) -> Any:
    return replicas.context().all_reduce("SUM", np.float32(1), options)


def _only_the_first(case: Case) -> Any:
    case.table("who", {"only worker 0 calls": None})
    seconds = case.inputs["timeout_seconds"]
    options = distribute.CommunicationOptions(timeout_seconds=seconds)
    strategy = case.strategy  # made by both
    if case.rank == 0:
        return strategy.run(_ones, args=(options,))
    time.sleep(seconds + 1)
    return "worker 1 did not take part"


def _after_a_timeout(case: Case) -> Any:
    case.table("after", {"a timed out collective": None})
    return case.strategy.run(_ones)


def _assign(synchronization: str) -> Any:
    """The cases do not say the synchronization; what is recorded tells it."""

    def run(case: Case) -> Any:
        variable = variables.make(case, synchronization=synchronization)
        given = case.inputs["value"]

        def here() -> None:
            variable.assign(variables.assigned(given, np.float32))

        if isinstance(given, str):  # it differs by replica
            case.strategy.run(here)
        else:
            with case.strategy.scope():
                here()
        component = variable.values[0].read_value()
        with case.strategy.scope():
            if synchronization == "ON_WRITE":
                return variable.read_value()
            return {"component": component, "read": variable.read_value()}

    return run


def _merge_call(case: Case) -> Any:
    return replicas.CASES["ReplicaContext.merge_call"](case)


def _deepcopy(case: Case) -> Any:
    twin = copy.deepcopy(case.strategy)
    assert twin is not case.strategy and type(twin) is type(case.strategy)
    return {"repr_type": "CollectiveAllReduceStrategy"}  # its class in TensorFlow


CASES = {
    "Strategy": _facts,
    "run": _run,
    "experimental_local_results": _local_results,
    "reduce": _reduce,
    "reduce_to": _reduce_to,
    "batch_reduce_to": _batch_reduce_to,
    "gather": _gather,
    "all_reduce": [_all_reduce, _all_reduce_mean],
    "all_gather": replicas.all_gather,
    "assign": [_assign("ON_WRITE"), _assign("ON_READ")],
    "merge_call": _merge_call,
    "copy.deepcopy": _deepcopy,
}
