"""What each kind of strategy does in its own way, behind the same methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np

import collectives
from strategy import contexts, nest
from strategy.cluster_resolver import ClusterResolver
from strategy.communication import Communication
from strategy.cross_device_ops import check_pair, copies, delivered
from strategy.devices import place_named
from strategy.input_context import InputContext, InputOptions
from strategy.options import CommunicationOptions, RunOptions
from strategy.placing import Place, moved, on, place_of, there
from strategy.reduce_op import ReduceOp
from strategy.reduction import Pack
from strategy.refusal import Refusal, or_refusal
from strategy.replica_context import ReplicaContext
from strategy.values import ValueContext, select
from strategy.variable_rules import PLAIN
from strategy.variables import Component, Variable

if TYPE_CHECKING:
    from strategy.base import Strategy

T = TypeVar("T")


class StrategyExtended:
    """The machinery of a strategy; this base is that of one replica by itself.

    A strategy with more replicas overrides the attributes and the hooks, which are the
    methods from `variable_kind` on. The methods before them are the same for all.
    """

    devices: tuple[str, ...] = ()
    """The device of each local replica."""
    variable_devices: tuple[str, ...] = ()
    """The devices that hold variables."""
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
    should_save_summary: bool = True
    """Whether this process writes what is for people to look at."""
    experimental_between_graph: bool = False
    """Whether several processes run the same program."""
    experimental_should_init: bool = True
    """Whether this process sets up its own variables."""
    experimental_require_static_shapes: bool = False
    """Whether all shapes must be known beforehand: never."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The device of each local replica; `RuntimeError` without a strategy."""
        return self._named(self.devices)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where the arrays of each local replica are."""
        return tuple(map(place_named, self.devices))

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The devices that hold variables; `RuntimeError` without a strategy."""
        return self._named(self.variable_devices)

    def _named(self, devices: tuple[str, ...]) -> tuple[str, ...]:
        if not devices:
            raise RuntimeError("no devices: the default strategy has not been told any")
        return devices

    @property
    def last_communication(self) -> Communication | None:
        """How the latest reduction was done; None before the first."""
        return None

    def copied_for(self, strategy: Strategy) -> StrategyExtended:
        """Return the machinery of a deep copy; replicas and ranks are the same."""
        made = object.__new__(type(self))
        made.__dict__.update(vars(self))
        made._strategy = strategy
        return made

    def reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value: Any,
        destinations: Any,
        options: CommunicationOptions | None = None,
    ) -> Any:
        """Combine all replicas' components of `value`; `destinations` get the result.

        Where these are several devices it is Mirrored, for one it is a bare array.
        `value` may be a nest.
        """
        pairs = [(leaf, destinations) for leaf in nest.flatten(value)]
        return nest.unflatten(value, self.batch_reduce_to(reduce_op, pairs, options))

    def batch_reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions | None = None,
    ) -> list[Any]:
        """Do `reduce_to` for several values at once, which then travel together."""
        contexts.require_cross_replica(self._strategy)

        def check() -> ReduceOp:
            for pair in value_destination_pairs:
                check_pair(pair)
            return ReduceOp.parse(reduce_op)

        op = self.agreed(check)
        return self.reduce_pairs(op, value_destination_pairs, options)

    def update(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Call `fn(component, *args)` for each local component of a variable.

        Each call gets its own component of PerReplica and Mirrored arguments. With
        `group` the results are one Mirrored value, else tuples. In replica context all
        replicas meet here, and it is done once.
        """
        replica = contexts.current().replica
        if replica is not None and contexts.has_strategy():

            def merge(strategy: Strategy, *merged: Any, **named: Any) -> Any:
                return strategy.extended.update(var, fn, merged, named, group)

            assert isinstance(replica, ReplicaContext)
            return replica.merge_call(merge, args, kwargs)
        contexts.require_cross_replica(self._strategy)
        return self.update_components(var, fn, list(args), dict(kwargs or {}), group)

    def variable_created_in_scope(self, v: Any) -> bool:
        """Return whether `v` is a variable that this strategy made."""
        return getattr(v, "distribute_strategy", None) is self._strategy

    def value_container(self, value: Any) -> Any:
        """Return the variable that `value` is a component of, or `value`."""
        return value.owner if isinstance(value, Component) else value

    @contextmanager
    def colocate_vars_with(self, colocate_with_variable: Any) -> Iterator[None]:
        """Make variables inside where this one is, which here is so anyhow.

        Raises `RuntimeError` outside the strategy's scope, `ValueError` for a variable
        that it did not make.
        """
        if not contexts.has_strategy() or (
            contexts.current().strategy is not self._strategy
        ):
            raise RuntimeError(f"wanted to be inside the scope of {self._strategy!r}")
        if not self.variable_created_in_scope(colocate_with_variable):
            raise ValueError(
                f"{colocate_with_variable!r} is not a variable of {self._strategy!r}"
            )
        yield

    def broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """Return `tensor` with a copy for each of the destinations."""
        contexts.require_cross_replica(self._strategy)
        copies(destinations)
        return self.spread(tensor, destinations)

    def variable_kind(self, on_read: bool) -> str:
        """Return the kind of a new variable, as variable_rules.py names it."""
        return PLAIN

    def initial_values(self, value: Any) -> list[Any]:
        """Return the first replica's `value` once for each local component.

        Arrays in variables are never written to, so those of the host share it.
        """
        homes = [place_named(device) for device in self.variable_devices]
        homes = homes or [place_of(value)]
        return [moved(value, home).view() for home in homes]

    def refuse(self, error: Exception) -> NoReturn:
        """Raise an error of this rank where all ranks are about to meet: on all."""
        if self.comm is not None:
            self.comm.all_reduce(Refusal(error))
        raise error

    def agreed(self, make: Callable[[], T]) -> T:
        """Return what `make` returns; what it raises here is raised on all ranks."""
        made = or_refusal(make)
        if isinstance(made, Refusal):
            self.refuse(made.error)
        return cast("T", made)

    def first(self, values: list[Any]) -> Any:
        """Return the first of all replicas' value; `values` are the local ones."""
        return values[0]

    def reduced(self, reduce_op: ReduceOp, values: list[Any]) -> Any:
        """Return the combination over all replicas; `values` are the local ones'."""
        return values[0]

    def reduce_pairs(
        self,
        reduce_op: ReduceOp,
        pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions | None,
    ) -> list[Any]:
        """Do `batch_reduce_to` with arguments that are checked."""
        return [delivered(value, to) for value, to in pairs]

    def all_reduce_lists(
        self,
        reduce_op: ReduceOp,
        lists: list[list[Any]],
        options: CommunicationOptions | None,
    ) -> list[list[Any]]:
        """Return each local replica's results, from each one's list of arrays."""
        return lists

    def start_all_reduce_lists(
        self,
        reduce_op: ReduceOp,
        lists: list[list[Any]],
        options: CommunicationOptions | None,
    ) -> list[list[Pack]]:
        """Start `all_reduce_lists`; return each local replica's packs."""
        results = self.all_reduce_lists(reduce_op, lists, options)
        return [[Pack(range(len(one)), partial(list, one))] for one in results]

    def all_gather_lists(
        self, lists: list[list[Any]], axis: int, options: CommunicationOptions | None
    ) -> list[list[Any]]:
        """Return each local replica's results, from each one's list of arrays."""
        return lists

    def gather_to(
        self, value: Any, axis: int, options: CommunicationOptions | None = None
    ) -> Any:
        """Join the components of `value` over all replicas along `axis`."""
        return value

    def spread(self, tensor: Any, destinations: Any) -> Any:
        """Do `broadcast_to` with arguments that are checked."""
        return tensor

    def update_components(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        """Do `update` in cross-replica context."""
        with (
            on(place_of(var.component(0)) if isinstance(var, Variable) else None),
            contexts.entered(contexts.Mode(self._strategy, None, 0)),
        ):
            result = fn(var, *select(0, args), **select(0, kwargs))
        return result if group else nest.map_structure(lambda leaf: (leaf,), result)

    def call_for_each_replica(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: RunOptions | None = None,
    ) -> Any:
        """Call `fn` as each local replica, which here is one: in this thread."""
        place = self.places[0] if self.devices else None
        return there(place, self._call_alone, fn, args, kwargs)

    def _call_alone(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        with ReplicaContext(self._strategy, np.int32(self.replica_ids[0])):
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
