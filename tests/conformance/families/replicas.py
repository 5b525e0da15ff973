"""ReplicaContext: merge_call, all_reduce, all_gather and their gradients."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import strategy as distribute
from conformance.case import Case, NotUnderstood, SkipCase
from conformance.expressions import array, evaluate, fill, slices, tensors
from strategy import gradients, nest


def context() -> Any:
    """Return the context of the replica that runs."""
    return distribute.get_replica_context()


def number() -> int:
    """Return the id of the replica that runs, as a Python number."""
    return int(context().replica_id_in_sync_group)


def in_replicas(case: Case, fn: Callable[[], Any]) -> Any:
    """Return what run gives; without a strategy what `fn` gives here."""
    return fn() if case.kind == "default" else case.strategy.run(fn)


def _merge_call(case: Case) -> Any:
    if case.inputs.get("where") == "tf.function nested in fn":
        raise SkipCase("tf.function tracing")

    text = case.inputs.get("merge_fn", "")

    def computed(strategy: Any, x: Any, **named: Any) -> Any:
        reducing = {
            op.lower(): lambda value, op=op: strategy.reduce(op, value, axis=None)
            for op in ("SUM", "MEAN")
        }
        return evaluate(text, x=x, **reducing, **named)

    def by_kwargs() -> Any:
        kwargs = {"y": case.inputs["y"]}  # the same object on all replicas
        return context().merge_call(computed, (np.float32(number()),), kwargs)

    reduction = re.fullmatch(r"reduce (SUM|MEAN)", text)
    if reduction:
        return in_replicas(
            case,
            lambda: context().merge_call(
                lambda strategy, x: strategy.reduce(reduction[1], x, axis=None),
                args=(np.float32(number() + 1),),
            ),
        )
    if "y" in case.inputs:
        return in_replicas(case, by_kwargs)

    def only_the_first() -> Any:
        return context().merge_call(lambda s: None) if number() == 0 else None

    def sees() -> Any:
        return context().merge_call(
            lambda strategy, x: [
                strategy.num_replicas_in_sync,
                distribute.in_cross_replica_context(),
                x,
            ],
            args=(4,),
        )

    def again(strategy: Any) -> Any:
        return context().merge_call(lambda s: None)

    known = {
        "identity of PerReplica": lambda: context().merge_call(
            lambda strategy, x: x, args=(np.int32(number() * 10),)
        ),
        "only replica 0 calls": only_the_first,
        "[n, in_cross, x]": sees,
        "calls get_replica_context() (None) again": lambda: context().merge_call(again),
    }
    return in_replicas(case, case.table("merge_fn", known))


def _options(text: str) -> tuple[str, Any]:
    """Return the value's text and the options that stand behind a semicolon."""
    value, _, rest = text.partition(";")
    hints = {
        name: int(hint)
        for name, hint in re.findall(r"(\w+)=(\d+)", rest)
        if name in ("bytes_per_pack", "timeout_seconds")
    }
    return value, distribute.CommunicationOptions(**hints) if hints else None


def value_of(given: Any, r: int, lists: str) -> Any:
    """Return the value that an input describes, on replica r."""
    if not isinstance(given, str):
        return array(given)
    if given.startswith("python "):
        return evaluate(given.removeprefix("python "))
    sizes = re.fullmatch(r"(\d+) tensors sizes ([\d,]+)", given.strip())
    if sizes:  # tensor i is full of r + i
        counts = map(int, sizes[2].split(","))
        return [fill(count, r + at) for at, count in enumerate(counts)]
    if given == "IndexedSlices with r+1 rows of r at indices 0..r":
        return slices([[r]] * (r + 1), list(range(r + 1)), [4, 1])
    return tensors(evaluate(given, r=r), lists=lists)


def all_reduce(case: Case) -> Any:
    """Run all_reduce on a value that differs by replica."""
    if case.inputs.get("op") is None and "value" not in case.inputs:
        raise NotUnderstood("no value")
    given, options = case.inputs["value"], None
    if isinstance(given, str):
        given, options = _options(given)
    hints = case.inputs.keys() & {"bytes_per_pack", "implementation"}
    if hints:
        chosen = {name: case.inputs[name] for name in hints}
        options = distribute.CommunicationOptions(**chosen)
    op = case.inputs.get("op", "SUM")
    return in_replicas(
        case,
        lambda: context().all_reduce(op, value_of(given, number(), "nest"), options),
    )


def all_gather(case: Case) -> Any:
    """Run all_gather on a value that differs by replica."""
    given, axis = case.inputs["value"], case.inputs.get("axis", 0)
    return in_replicas(
        case, lambda: context().all_gather(value_of(given, number(), "tensor"), axis)
    )


class _Traced:
    """A value and how a gradient by it goes back to x: enough for these cases."""

    def __init__(self, value: Any, back: Callable[[Any], Any]) -> None:
        self.value, self.back = value, back

    def __pow__(self, power: int) -> _Traced:
        slope = power * self.value ** (power - 1)
        return _Traced(self.value**power, lambda g: self.back(g * slope))

    def __mul__(self, factor: Any) -> _Traced:
        factor = np.asarray(factor, np.float32)
        return _Traced(self.value * factor, lambda g: self.back(g * factor))

    __rmul__ = __mul__


def _gradient(case: Case) -> Any:
    """Return [y, dz/dx], y being what the collective in z gives."""
    inputs = case.inputs
    if inputs.get("returns") != "[y, dz/dx]":
        raise NotUnderstood(f"returns {inputs.get('returns')!r}")

    def replica() -> Any:
        r, seen = number(), []
        x = tensors(evaluate(inputs["x"], r=r))
        traced = _Traced(x, lambda g: g)

        def reducing(op: str, one: _Traced) -> _Traced:
            y, backward = gradients.all_reduce(op, one.value)
            seen.append(y)
            return _Traced(y, lambda g: one.back(backward(g)))

        def gathering(one: _Traced) -> _Traced:
            y, backward = gradients.all_gather(one.value, axis=0)
            seen.append(y)
            return _Traced(y, lambda g: one.back(backward(g)))

        def summing(one: _Traced) -> _Traced:
            ones = np.ones_like(one.value)
            return _Traced(one.value.sum(), lambda g: one.back(g * ones))

        z = evaluate(
            re.sub(r"(?<=\))\*(\[[^\]]*\])", r"*array(\1)", inputs["z"]),
            r=r,
            x=traced,
            SUM="SUM",
            MEAN="MEAN",
            all_reduce=reducing,
            all_gather=gathering,
            sum=summing,
            array=array,
        )
        slope = z.back(np.ones_like(z.value))
        return [seen[0], nest.map_structure(np.asarray, slope)]

    return in_replicas(case, replica)


CASES = {
    "ReplicaContext.merge_call": _merge_call,
    "ReplicaContext.all_reduce": all_reduce,
    "ReplicaContext.all_gather": all_gather,
    "ReplicaContext.all_reduce(gradient)": _gradient,
    "ReplicaContext.all_gather(gradient)": _gradient,
}
