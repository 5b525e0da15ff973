"""Where the running code is: outside, in a scope, in a replica, in an update.

Each thread has a stack of modes. An empty stack is the default mode: the default
strategy, whose one replica is the caller. Strategies push a mode for the time of a
`with` block and nothing else is global, so several replicas can be several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

from strategy.errors import MixedStrategiesError
from strategy.placing import Place
from strategy.reduce_op import ReduceOp


class Extended(Protocol):
    """What variables ask of a strategy's machinery."""

    def variable_kind(self, on_read: bool) -> str:
        """Return the kind of a variable: a key of the tables in variables.py."""

    replica_ids: tuple[Any, ...]
    num_replicas_in_sync: int

    @property
    def places(self) -> tuple[Place, ...]:
        """Where the arrays of each local replica are; nothing if that is not said."""

    def initial_values(self, value: Any) -> list[Any]:
        """Return the first replica's value once for each component held here."""

    def refuse(self, error: Exception) -> NoReturn:
        """Raise an error of this rank on all of them, where they are about to meet."""

    def reduced(self, reduce_op: ReduceOp, values: list[Any]) -> Any:
        """Return the combination over all replicas; `values` are the local ones'."""

    def first(self, values: list[Any]) -> Any:
        """Return the value of the first of all replicas; `values` are the local ones'.

        A collective call.
        """


class Strategy(Protocol):
    """A strategy, as far as contexts and variables know it."""

    @property
    def extended(self) -> Extended:
        """The machinery behind the methods."""

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas on all ranks together."""

    def scope(self) -> AbstractContextManager[Any]:
        """Enter the strategy's cross-replica context."""


class Replica(Protocol):
    """A replica context, as far as contexts and variables know it."""

    @property
    def local_index(self) -> int:
        """Which of the replicas in this process it is."""

    def meet(
        self, doing: str, given: Any, combine: Callable[[list[Any]], Sequence[Any]]
    ) -> Any:
        """Wait for the other local replicas; return this one's part of the result."""


@dataclass(frozen=True)
class Mode:
    """One entry of the stack."""

    strategy: Strategy
    replica: Replica | None = None
    """The replica that runs; None in cross-replica context."""
    update_index: int | None = None
    """Which component `extended.update` is at; None outside an update."""


class _Lasting(NamedTuple):
    """The scope that `experimental_set_strategy` has entered."""

    scope: AbstractContextManager[Any]
    mode: Mode


class _Stack(threading.local):
    def __init__(self) -> None:
        self.modes: list[Mode] = []
        self.lasting: _Lasting | None = None


_stack = _Stack()
_default: list[Mode] = []  # one entry, once base.py has made the default strategy


def set_default(mode: Mode) -> None:
    """Say what holds where no strategy's scope is open."""
    _default[:] = [mode]


def default_strategy() -> Strategy:
    """Return the strategy of code that is in no scope."""
    return _default[0].strategy


def current() -> Mode:
    """Return the mode that this thread is in."""
    return _stack.modes[-1] if _stack.modes else _default[0]


class entered:
    """Being in a mode for the time of a `with` block."""

    __slots__ = ("_mode",)

    def __init__(self, mode: Mode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        """Put the mode on top of this thread's stack."""
        _stack.modes.append(self._mode)

    def __exit__(self, *exception: object) -> None:
        """Take it away again."""
        _stack.modes.pop()


def has_strategy() -> bool:
    """Return whether a strategy other than the default one is in use here."""
    return current().strategy is not _default[0].strategy


def in_cross_replica_context() -> bool:
    """Return whether the code here runs once for all replicas, not in one of them."""
    return current().replica is None


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """Enter the scope of `strategy` for good in this thread, or leave it with None.

    The one set before is left first. Raises `RuntimeError` inside a scope.
    """
    if _stack.lasting is not None:
        if current() is not _stack.lasting.mode:
            raise RuntimeError("experimental_set_strategy inside a strategy's scope")
        _stack.lasting.scope.__exit__(None, None, None)
        _stack.lasting = None
    if has_strategy():
        raise RuntimeError("experimental_set_strategy inside a strategy's scope")
    if strategy is not None:
        scope = strategy.scope()
        scope.__enter__()
        _stack.lasting = _Lasting(scope, current())


def require_same(strategy: Strategy) -> None:
    """Raise `MixedStrategiesError` in the scope of a strategy other than this."""
    if has_strategy() and current().strategy is not strategy:
        raise MixedStrategiesError(
            f"mixing different strategy objects: {current().strategy!r} is in use, "
            f"{strategy!r} is asked to act"
        )


def require_cross_replica(strategy: Strategy) -> None:
    """Raise `RuntimeError` unless `strategy` may act here for all its replicas.

    It may in its own cross-replica context, and where no scope is open at all.
    """
    require_same(strategy)
    if has_strategy() and not in_cross_replica_context():
        raise RuntimeError(
            "this method needs the cross-replica context, and this is inside run(): "
            "use get_replica_context().merge_call(), all_reduce() or all_gather()"
        )
