"""What each kind of strategy does in its own way, behind the same methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import collectives
from strategy import contexts
from strategy.cluster_resolver import ClusterResolver
from strategy.input_context import InputContext, InputOptions
from strategy.options import CommunicationOptions
from strategy.reduce_op import ReduceOp
from strategy.replica_context import ReplicaContext
from strategy.values import DistributedValues, Mirrored, ValueContext, regroup, select
from strategy.variable_rules import PLAIN

if TYPE_CHECKING:
    from strategy.base import Strategy


class StrategyExtended:
    """The machinery of a strategy; this base is that of one replica by itself.

    A strategy with more replicas overrides the attributes and the hooks, which are the
    methods from `variable_kind` on. The methods before them are the same for all.
    """

    worker_devices: tuple[str, ...] = ("CPU:0",)
    """The device of each local replica; variables live there too."""
    replica_ids: tuple[int, ...] = (0,)
    """The number of each local replica among all of them."""
    num_replicas_in_sync: int = 1
    """The number of replicas on all ranks together."""
    cluster_resolver: ClusterResolver | None = None
    """Says which task this process is, None for a strategy of one process."""
    comm: collectives.Communicator | None = None
    """The processes that act together, None where there is one."""
    should_checkpoint: bool = True
    """Whether this process writes the checkpoint that is kept."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The devices that hold variables."""
        return self.worker_devices

    def reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value: Any,
        destinations: Any,
        options: CommunicationOptions | None = None,
    ) -> Any:
        """Combine all replicas' components of `value`; `destinations` get the result.

        With one device in this process the result is a bare array.
        """
        return self.batch_reduce_to(reduce_op, [(value, destinations)], options)[0]

    def batch_reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions | None = None,
    ) -> list[Any]:
        """Do `reduce_to` for several values at once, which then travel together."""
        op = ReduceOp.parse(reduce_op)
        contexts.require_cross_replica(self._strategy)
        for pair in value_destination_pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ValueError(f"got {pair!r}; wanted a (value, destinations) tuple")
            _check_destinations(pair[1])
        values = [value for value, _ in value_destination_pairs]
        return self.reduce_values(op, values, options)

    def update(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Call `fn(var, *args)` for each local component; `var` writes to that one.

        `group=False` returns a tuple with the result of each component.
        """
        replica = contexts.current().replica
        if replica is not None and contexts.has_strategy():

            def merge(strategy: Strategy, *merged: Any, **named: Any) -> Any:
                return strategy.extended.update(var, fn, merged, named, group)

            return replica.merge_call(merge, args, kwargs)
        contexts.require_cross_replica(self._strategy)
        if not self.variable_created_in_scope(var):
            raise ValueError(f"{var!r} is not a variable of {self._strategy!r}")
        results = []
        for index in range(len(self.replica_ids)):
            with contexts.entered(contexts.Mode(self._strategy, None, index)):
                named = select(index, dict(kwargs or {}))
                results.append(fn(var, *select(index, list(args)), **named))
        return regroup(results, Mirrored) if group else tuple(results)

    def variable_created_in_scope(self, v: Any) -> bool:
        """Return whether `v` is a variable that this strategy made."""
        return getattr(v, "distribute_strategy", None) is self._strategy

    def variable_kind(self, on_read: bool) -> str:
        """Return the kind of a new variable, as variable_rules.py names it."""
        return PLAIN

    def initial_values(self, value: Any) -> list[Any]:
        """Return the first replica's `value` once for each local component."""
        return [value]

    def first_to_all(self, value: Any) -> Any:
        """Return the component of `value` that the first of all replicas has."""
        return value

    def reduce_values(
        self,
        reduce_op: ReduceOp,
        values: Sequence[Any],
        options: CommunicationOptions | None = None,
    ) -> list[Any]:
        """Return the combination of each of `values` over all replicas, bare."""
        return list(values)

    def gather_to(
        self, value: Any, axis: int, options: CommunicationOptions | None = None
    ) -> Any:
        """Join the components of `value` over all replicas along `axis`."""
        return value

    def call_for_each_replica(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call `fn` as each local replica, which here is one: in this thread."""
        with ReplicaContext(self._strategy, self.replica_ids[0]):
            return fn(*select(0, list(args)), **select(0, dict(kwargs)))

    def distribute_values(self, value_fn: Callable[[ValueContext], Any]) -> Any:
        """Return what `value_fn` gives for each local replica."""
        return value_fn(ValueContext())

    def distribute_dataset(
        self, dataset: Iterable[Any], options: InputOptions | None = None
    ) -> Iterable[Any]:
        """Return each replica's share of the batches in `dataset`."""
        return dataset

    def distribute_from_function(
        self,
        dataset_fn: Callable[[InputContext], Iterable[Any]],
        options: InputOptions | None = None,
    ) -> Iterable[Any]:
        """Return the batches that `dataset_fn` makes for this process."""
        return dataset_fn(InputContext())


def _check_destinations(destinations: Any) -> None:
    """Refuse what names no device: `ValueError`."""
    is_value = isinstance(destinations, DistributedValues) or hasattr(
        destinations, "dtype"
    )
    if not is_value and not (isinstance(destinations, str) and destinations):
        raise ValueError(
            f"destinations is {destinations!r}; wanted a distributed value, a "
            "variable, an array or the name of a device"
        )
