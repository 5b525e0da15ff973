"""What a function sees when a strategy runs it as one of its replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from strategy import contexts, nest
from strategy.options import CommunicationOptions
from strategy.reduce_op import ReduceOp
from strategy.values import select

if TYPE_CHECKING:
    from strategy.base import Strategy


class ReplicaContext:
    """One replica, and its ways to meet the others.

    It is a context manager: inside, it is the current replica. Where a process holds
    several replicas, each is a thread and a subclass makes `_meet` their rendezvous.
    """

    def __init__(
        self, strategy: Strategy, replica_id: int = 0, local_index: int = 0
    ) -> None:
        self._strategy = strategy
        self._replica_id = replica_id
        self._local_index = local_index
        self._entered: list[AbstractContextManager[None]] = []

    @property
    def strategy(self) -> Strategy:
        """The strategy that runs this replica."""
        return self._strategy

    @property
    def replica_id_in_sync_group(self) -> int:
        """Which of all replicas it is, counted from 0."""
        return self._replica_id

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas on all ranks together."""
        return self._strategy.num_replicas_in_sync

    @property
    def local_index(self) -> int:
        """Which of the replicas in this process it is."""
        return self._local_index

    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `merge_fn(strategy, *args, **kwargs)` once for all local replicas.

        It runs in cross-replica context; each argument holds the replicas' values
        together, and each replica gets its own part of the result. All replicas must
        come here. Raises `RuntimeError` if this is not the current replica.
        """
        if contexts.current().replica is not self:
            raise RuntimeError(
                f"merge_call on {self!r}, which is not the replica that runs here"
            )
        return self._meet(merge_fn, args, kwargs or {})

    def all_reduce(
        self,
        reduce_op: ReduceOp | str,
        value: Any,
        options: CommunicationOptions | None = None,
    ) -> Any:
        """Return the SUM or MEAN over all replicas of each array in the nest `value`.

        The arrays of a nest travel together; their shapes must agree on all replicas.
        """
        op = ReduceOp.parse(reduce_op)

        def merge(strategy: Strategy, *leaves: Any) -> list[Any]:
            return strategy.extended.reduce_values(op, leaves, options)

        reduced = self.merge_call(merge, args=nest.flatten(value))
        return nest.unflatten(value, reduced)

    def all_gather(
        self, value: Any, axis: int, options: CommunicationOptions | None = None
    ) -> Any:
        """Return all replicas' values joined along `axis`, for each array in a nest.

        Lengths along `axis` may differ. Raises `ValueError` for an axis from outside.
        """

        def merge(strategy: Strategy, *leaves: Any) -> list[Any]:
            return [strategy.extended.gather_to(leaf, axis, options) for leaf in leaves]

        gathered = self.merge_call(merge, args=nest.flatten(value))
        return nest.unflatten(value, gathered)

    def _meet(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Run `merge_fn` for the local replicas, of which this is the only one."""
        with contexts.entered(contexts.Mode(self._strategy)):
            merged = merge_fn(self._strategy, *args, **kwargs)
        return select(self._local_index, merged)

    def __enter__(self) -> ReplicaContext:
        entered = contexts.entered(contexts.Mode(self._strategy, self))
        entered.__enter__()
        self._entered.append(entered)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._entered.pop().__exit__(*exception)

    def __repr__(self) -> str:
        return f"<replica {self._replica_id} of {self.num_replicas_in_sync}>"


def get_strategy() -> Strategy:
    """Return the strategy in use here, the default one outside scopes."""
    return cast("Strategy", contexts.current().strategy)


def get_replica_context() -> ReplicaContext | None:
    """Return the replica that runs here, None in cross-replica context."""
    return cast("ReplicaContext | None", contexts.current().replica)
