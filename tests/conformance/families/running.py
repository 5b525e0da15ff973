"""Strategy.run, contexts and scopes."""

from __future__ import annotations

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


def _boom() -> None:
    if _id() == 1:
        raise KeyError("boom")


# What a replica returns, by the text that describes it.
RETURNS = {
    "replica_id_in_sync_group tensor": _id,
    "replica id": _id,
    "replica_id": _id,
    "python 7 on every replica (same object)": lambda: 7,
    "None": lambda: None,
    "(replica_id, 5, 's')": lambda: (_id(), 5, "s"),
    "{'a': replica_id, 'b': [1,2]}": lambda: {
        "a": _id(),
        "b": np.array([1, 2], np.float32),
    },
    "namedtuple(a=replica_id,b=3)": lambda: NT(_id(), 3),
    "tensor 4.0, one replica -> plain tensor": lambda: np.float32(4),
    "list whose length differs by replica": lambda: [1] * (_id() + 1),
    "1000+replica_id python int": lambda: 1000 + int(_id()),
    "equal but distinct tensors": lambda: np.array(1, np.float32),
}


def _returning(text: str) -> Any:
    """Return what a replica does that returns what a text says."""
    if text in RETURNS:
        return RETURNS[text]
    expression = re.sub(r"\s*\([^()]*\)$", "", text.removeprefix("python "))

    def replica() -> Any:
        names = {"replica_id": _id(), "r": int(_id()), "namedtuple": NT}
        found = evaluate(expression, **names)
        return found if text.startswith("python ") else tensors(found, lists="tensor")

    return replica


def _run(case: Case) -> Any:
    inputs, strategy = case.inputs, case.strategy
    if "fn_returns" in inputs:
        return strategy.run(_returning(inputs["fn_returns"]))
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
    known = {"raises KeyError('boom') on replica 1": _boom, **RETURNS}
    return strategy.run(case.table("fn", known))


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
