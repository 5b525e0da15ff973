"""Checkpoints of variables, restored into other numbers of replicas."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import Case, make_strategy
from strategy.checkpoint import file


def _variable(strategy: Any, given: dict[str, Any], components: list[Any]) -> Any:
    """Return a variable of `strategy` with a component for each local replica."""
    dtype = given.get("dtype", "float32")
    kind = distribute.VariableSynchronization[given.get("synchronization", "ON_READ")]
    with strategy.scope():
        variable = distribute.Variable(
            np.zeros((), dtype),
            synchronization=kind,
            aggregation=distribute.VariableAggregation[given.get("aggregation", "SUM")],
        )
    values = [np.array(value, dtype) for value in components]
    if kind is distribute.VariableSynchronization.ON_READ:
        strategy.run(variable.assign, args=(distribute.PerReplica(values),))
    else:
        variable.assign(values[0])
    return variable


def _saved(path: str | None) -> Any:
    """Return what a file holds, where it was written."""
    return None if path is None else file.read(file.named(path))[0]["v"]


def _one_process(case: Case) -> Any:
    given = case.inputs
    first = make_strategy(
        {**(case.strategy_spec or {}), "replicas": given["save_replicas"]}
    )
    second = make_strategy(
        {**(case.strategy_spec or {}), "replicas": given["restore_replicas"]}
    )
    saved = _variable(first, given, given["components"])
    restored = _variable(second, given, [0] * given["restore_replicas"])
    with tempfile.TemporaryDirectory() as folder:
        path = distribute.Checkpoint(v=saved).save(f"{folder}/ckpt")
        distribute.Checkpoint(v=restored).restore(path)
        return {
            "saved": _saved(path),
            "restored_components": [np.asarray(part) for part in restored.values],
            "restored_read": restored.read_value(),
        }


def _several(case: Case) -> Any:
    comm = case.strategy.extended.comm
    mine = [case.inputs["components"][case.rank]]
    variable = _variable(case.strategy, case.inputs, mine)
    checkpoint = distribute.Checkpoint(v=variable)
    with tempfile.TemporaryDirectory() as own:
        folder = comm.broadcast_object(own)
        path = checkpoint.save(f"{folder}/ckpt")
        saved = comm.broadcast_object(_saved(path if comm.rank == 0 else None))
        checkpoint.restore(path)
        comm.barrier()
    return {
        "saved": saved,
        "restored_component": np.asarray(variable.values[0]),
        "read": variable.read_value(),
    }


def _checkpoint(case: Case) -> Any:
    return _several(case) if case.kind == "MultiWorkerMirrored" else _one_process(case)


CASES = {"Checkpoint": _checkpoint}
