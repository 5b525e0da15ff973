"""StrategyExtended and the cross-device operations."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import Case, NotUnderstood
from conformance.expressions import array, components, evaluate, per_replica, tensors
from strategy import VariableAggregation, partitioners
from strategy.packs import concat_and_split


def _op(case: Case) -> Any:
    op = case.inputs.get("op", "SUM")
    prefix = "VariableAggregation."
    if op.startswith(prefix):
        return VariableAggregation[op.removeprefix(prefix)]
    return op


def _variable(case: Case, initial: float = 1.0) -> Any:
    with case.strategy.scope():
        return distribute.Variable(np.float32(initial))


def _destinations(case: Case, text: Any, value: Any) -> Any:
    if text in ("value", "same as value", None):
        return value
    if text == "mirrored variable":
        return _variable(case)
    if text == "PerReplica on 2 devices":
        return per_replica([0.0, 0.0])
    return text


def _reduce_to(case: Case) -> Any:
    inputs, extended = case.inputs, case.strategy.extended
    if "indices" in inputs:
        value = distribute.PerReplica(
            [
                distribute.IndexedSlices(
                    np.array(rows, np.float32),
                    np.array(indices, np.int32),
                    np.array(inputs["dense_shape"], np.int32),
                )
                for rows, indices in zip(
                    inputs["values"], inputs["indices"], strict=True
                )
            ]
        )
    elif isinstance(inputs.get("value"), dict):
        value = {key: per_replica(parts) for key, parts in inputs["value"].items()}
    else:
        value = per_replica(inputs.get("per_replica", [1.0, 2.0]))
    to = _destinations(case, inputs.get("destinations"), value)
    if inputs.get("inside") == "run":
        return case.strategy.run(lambda: extended.reduce_to(_op(case), value, to))
    return extended.reduce_to(_op(case), value, to)


def _batch_reduce_to(case: Case) -> Any:
    inputs, extended = case.inputs, case.strategy.extended
    if "pairs" in inputs:
        value = per_replica([1.0, 2.0])
        pairs = [[value, value]] if inputs["pairs"] == "lists not tuples" else []
        return extended.batch_reduce_to(_op(case), pairs)
    if "dtypes" in inputs:
        values = [per_replica([1, 2], dtype) for dtype in inputs["dtypes"]]
    else:
        values = [per_replica(parts) for parts in inputs["per_replica"]]
    texts = inputs.get("destinations")
    if not isinstance(texts, list):
        texts = [texts] * len(values)
    pairs = [
        (value, _destinations(case, text, value))
        for value, text in zip(values, texts, strict=True)
    ]
    return extended.batch_reduce_to(_op(case), pairs)


def _broadcast_to(case: Case) -> Any:
    to = _destinations(case, case.inputs["destinations"], None)
    return case.strategy.extended.broadcast_to(array(case.inputs["value"]), to)


def _update(case: Case) -> Any:
    inputs, extended = case.inputs, case.strategy.extended
    if inputs.get("var") == "created outside scope":
        return extended.update(distribute.Variable(np.float32(1)), lambda v: None)
    variable = _variable(case, inputs.get("var_initial", 1.0))

    def update(component: Any, *given: Any) -> Any:
        text = inputs["fn"].removesuffix("(python int)")
        names = {name: getattr(component, name) for name in ("assign", "assign_add")}
        names["assign_sub"] = component.assign_sub
        found = evaluate(
            text, v=component, **names, **dict(zip("xyz", given, strict=False))
        )
        return tensors(found) if isinstance(found, (dict, float)) else found

    args = [components(value) for value in inputs.get("args", [])]

    def here() -> Any:
        return extended.update(variable, update, args, group=inputs.get("group", True))

    in_run = inputs.get("context") == "replica"
    result = case.strategy.run(here) if in_run else here()
    return {"result": result, "var_after": variable}


def _created_in_scope(case: Case) -> Any:
    outside = distribute.Variable(np.float32(1))
    return [
        strategy.extended.variable_created_in_scope(outside)
        for strategy in (case.strategy, distribute.get_strategy())
    ]


def _colocate(case: Case) -> Any:
    extended = case.strategy.extended
    if case.inputs.get("context") == "outside scope":
        with extended.colocate_vars_with(_variable(case)):
            return None
    outside = distribute.Variable(np.float32(1))
    with case.strategy.scope(), extended.colocate_vars_with(outside):
        return None


OPS = {
    "ReductionToOneDevice": distribute.ReductionToOneDevice,
    "HierarchicalCopyAllReduce": distribute.HierarchicalCopyAllReduce,
    "NcclAllReduce": distribute.NcclAllReduce,
    "base": distribute.CrossDeviceOps,
}


def _ops_reduce(case: Case) -> Any:
    ops = OPS[case.inputs.get("class", "ReductionToOneDevice")]()
    value = per_replica(case.inputs.get("per_replica", [1.0, 4.0]))
    # the cases without an op are of a MEAN
    to = case.inputs.get("destinations", "CPU:0")
    return ops.reduce(case.inputs.get("op", "MEAN"), value, to)


def _ops_broadcast(case: Case) -> Any:
    to = _destinations(case, case.inputs["destinations"], None)
    return distribute.ReductionToOneDevice().broadcast(array(case.inputs["tensor"]), to)


def _all_reduce_by(case: Case) -> Any:
    """All-reduce through a Mirrored strategy that has the api's cross-device ops."""
    inputs = case.inputs
    if "num_packs" in inputs:
        return OPS[case.api](num_packs=inputs["num_packs"])
    arguments = {}
    if "accumulation_fn" in inputs:
        found = re.fullmatch(
            r"\w+ via reduce_(\w+)\(stack\)", inputs["accumulation_fn"]
        )
        if found is None:
            raise NotUnderstood(f"accumulation_fn {inputs['accumulation_fn']!r}")
        ufunc = getattr(np, found[1])
        arguments["accumulation_fn"] = lambda parts: ufunc(parts, axis=0)
    strategy = distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(case.replicas)],
        cross_device_ops=OPS[case.api](**arguments),
    )

    def replica() -> Any:
        context = distribute.get_replica_context()
        assert context is not None
        r = int(context.replica_id_in_sync_group)
        value = tensors(evaluate(inputs.get("value", "[r+1, fill(3, r)]"), r=r))
        return context.all_reduce(inputs["op"], value)

    return strategy.run(replica)


def _packer(case: Case) -> Any:
    if case.inputs.get("values") != "range(c) per tensor":
        raise NotUnderstood(f"values {case.inputs.get('values')!r}")
    arrays = [np.arange(c, dtype=np.float32) for c in case.inputs["element_counts"]]
    return concat_and_split(arrays, case.inputs["num_packs"])


def _hierarchical_copy(case: Case) -> Any:
    """Sum lists of values over devices; the answer has a list for each device."""
    text, _, rest = case.inputs["value"].partition(" for g in ")
    first, last = map(int, rest.split(".."))
    count = case.inputs["devices"]
    values = [
        distribute.PerReplica(
            [np.float32(evaluate(text, dev=dev, g=g)) for dev in range(count)]
        )
        for g in range(first, last + 1)
    ]
    ops = distribute.HierarchicalCopyAllReduce(num_packs=0)
    totals = ops.batch_reduce("SUM", [(value, value) for value in values])
    return [[total.values[device] for total in totals] for device in range(count)]


def _partition(case: Case) -> Any:
    """Make a partitioner by its name, such as min_4b_max2, and ask it."""
    numbers = [int(number) for number in re.findall(r"\d+", case.inputs["name"])]
    if case.api == "FixedShardsPartitioner":
        numbers = numbers[:1]  # the other is the length of the shape
    partitioner = getattr(partitioners, case.api)(*numbers)
    return partitioner(case.inputs["shape"], case.inputs["dtype"])


CASES = {
    "StrategyExtended.reduce_to": _reduce_to,
    "StrategyExtended.batch_reduce_to": _batch_reduce_to,
    "StrategyExtended.broadcast_to": _broadcast_to,
    "StrategyExtended.update": _update,
    "StrategyExtended.variable_created_in_scope": _created_in_scope,
    "StrategyExtended.colocate_vars_with": _colocate,
    "CrossDeviceOps.reduce": _ops_reduce,
    "CrossDeviceOps.broadcast": _ops_broadcast,
    "ReductionToOneDevice": _all_reduce_by,
    "HierarchicalCopyAllReduce": _all_reduce_by,
    "NcclAllReduce": _all_reduce_by,
    "ConcatAndSplitPacker": _packer,
    "hierarchical_copy": _hierarchical_copy,
    "FixedShardsPartitioner": _partition,
    "MinSizePartitioner": _partition,
    "MaxSizePartitioner": _partition,
}
