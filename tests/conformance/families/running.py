"""Strategy.run, contexts and scopes."""

from __future__ import annotations

import builtins
import copy
import re
from typing import Any, NamedTuple

import numpy as np

import strategy as distribute
from conformance.case import Case, make_strategy
from conformance.expressions import components, evaluate, tensors


class NT(NamedTuple):
    """A named tuple, as one case returns it."""

    a: Any
    b: Any


def _id() -> Any:
    context = distribute.get_replica_context()
    assert context is not None
    return context.replica_id_in_sync_group


# What a replica returns, where the text that describes it is no expression.
RETURNS = {
    "replica_id_in_sync_group tensor": _id,
    "replica id": _id,
    "list whose length differs by replica": lambda: [1] * (int(_id()) + 1),
    "equal but distinct tensors": lambda: np.array(1, np.float32),
}


def returning(text: str) -> Any:
    """Return what a replica does that returns what a text says."""
    if text in RETURNS:
        return RETURNS[text]
    raising = re.fullmatch(r"raises (\w+)\('(.*)'\) on replica (\d+)", text)
    if raising:
        return lambda: _raise(raising[1], raising[2], int(raising[3]))
    number = re.match(r"(python|tensor) (-?[\d.]+)\b", text)
    if number:
        value = evaluate(number[2])
        return lambda: value if number[1] == "python" else np.float32(value)
    expression = re.sub(r"\s+\([^()]*\)$", "", text)  # a remark

    def replica() -> Any:
        names = {"replica_id": _id(), "r": int(_id())}
        found = evaluate(expression, namedtuple=NT, **names)
        return _with_arrays(found)

    return replica


def _with_arrays(value: Any) -> Any:
    """Return a result with its lists of numbers, and its floats, as arrays."""
    if isinstance(value, tuple):
        items = [_with_arrays(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, dict):
        return {key: _with_arrays(item) for key, item in value.items()}
    if isinstance(value, (list, float)):
        return tensors(value, lists="tensor")
    return value


def _raise(kind: str, text: str, where: int) -> None:
    if _id() == where:
        raise getattr(builtins, kind)(text)


def _run(case: Case) -> Any:
    inputs, strategy = case.inputs, case.strategy
    if "fn_returns" in inputs:
        return strategy.run(returning(inputs["fn_returns"]))
    if "inside" in inputs:
        return strategy.run(lambda: strategy.run(lambda: 1))
    if "args" in inputs or "kwargs" in inputs:
        args, kwargs = inputs.get("args", []), inputs.get("kwargs", {})
        if isinstance(args, list):
            args = [components(value) for value in args]
        return strategy.run(
            lambda *given, **named: evaluate(
                inputs.get("fn", "x"), **dict(zip("xyz", given, strict=False)), **named
            ),
            args=args,
            kwargs={key: components(value) for key, value in kwargs.items()},
        )
    return strategy.run(returning(inputs["fn"]))


# The classes of TensorFlow's contexts, outside of strategies and in them.
CONTEXTS = {False: "_DefaultReplicaContext", True: "_MirroredReplicaContext"}


def _facts() -> dict[str, Any]:
    """Return what the module functions say here, and the name of the context."""
    context = distribute.get_replica_context()
    return {
        "has_strategy": distribute.has_strategy(),
        "in_cross_replica_context": distribute.in_cross_replica_context(),
        "num_replicas": distribute.get_strategy().num_replicas_in_sync,
        "replica_context": context and CONTEXTS[distribute.has_strategy()],
    }


def _context(case: Case) -> Any:
    if case.inputs.get("where") in ("default", "no scope", "outside"):
        return _facts()
    if case.inputs.get("where") == "default scope":
        with distribute.get_strategy().scope():
            return _facts()
    strategy = case.strategy

    def in_scope() -> Any:
        with strategy.scope():
            return _facts()

    def in_run() -> Any:
        found: list[Any] = []
        strategy.run(lambda: found.append(_facts()))
        return found[0]

    def in_merge_call() -> Any:
        found: list[Any] = []

        def replica() -> None:
            context = distribute.get_replica_context()
            assert context is not None
            context.merge_call(lambda strategy: found.append(_facts()))

        strategy.run(replica)
        return found[0]

    def in_update() -> Any:
        found: list[Any] = []
        with strategy.scope():
            variable = distribute.Variable(np.float32(1))

        def update(component: Any) -> None:
            found.append({**_facts(), "update_replica_id": component.index})

        strategy.extended.update(variable, update)
        return found[-1]

    places = {
        "scope": in_scope,
        "run": in_run,
        "merge_call": in_merge_call,
        "extended.update": in_update,
    }
    return case.table("where", places)()


def _scope(case: Case) -> Any:
    strategy = case.strategy

    def scoped(inner: Any) -> Any:
        with inner.scope():
            return _facts()

    if "inside" in case.inputs:
        inside = {"run": lambda: strategy.run(lambda: scoped(strategy))}
        return case.table("inside", inside)()
    nested = {
        "same": lambda: scoped(strategy),
        "different strategy": lambda: scoped(make_strategy(case.strategy_spec)),
        "default": lambda: scoped(make_strategy({"kind": "default"})),
        "default strategy": lambda: scoped(make_strategy({"kind": "default"})),
    }
    with strategy.scope():
        return case.table("nest", nested)()


def _set_strategy(case: Case) -> Any:
    if "inside" in case.inputs:
        with case.strategy.scope():
            distribute.experimental_set_strategy(case.strategy)
    try:
        distribute.experimental_set_strategy(case.strategy)
        return _facts()
    finally:
        distribute.experimental_set_strategy(None)


def _replica_id(case: Case) -> Any:
    return case.table("where", {"default context": _id, "run": _id})()


def _run_options(case: Case) -> Any:
    options = distribute.RunOptions(**case.inputs)
    return [str(field) for field in options[:3]]  # the fourth is our own


CASES = {
    "Strategy.run": _run,
    "Strategy.scope": _scope,
    "context": _context,
    "experimental_set_strategy": _set_strategy,
    "ReplicaContext.replica_id_in_sync_group": _replica_id,
    "RunOptions": _run_options,
    "copy.copy": lambda case: copy.copy(case.strategy),
}
