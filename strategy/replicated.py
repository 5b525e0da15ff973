"""The machinery of strategies with several replicas, here or on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from strategy import contexts, local_reduce, nest
from strategy.collective_all_reduce import CollectiveAllReduce
from strategy.communication import Communication
from strategy.cross_device_ops import CrossDeviceOps, checked, delivered, per_replica
from strategy.distributed_dataset import DistributedDataset
from strategy.errors import StructureError
from strategy.extended import StrategyExtended
from strategy.indexed_slices import IndexedSlices
from strategy.input_context import InputContext, InputOptions
from strategy.input_pipelines import distribute, from_function
from strategy.options import CommunicationOptions, RunOptions
from strategy.placing import Place, copied, on, place_of
from strategy.reduce_op import ReduceOp
from strategy.reduction import Pack
from strategy.replica_context import ReplicaContext
from strategy.replicas import Meeting
from strategy.streams import current_streams, working
from strategy.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    ValueContext,
    plain,
    regroup,
    select,
)
from strategy.variable_rules import MIRRORED, ON_READ
from strategy.variables import Component, Variable

if TYPE_CHECKING:
    from strategy.base import Strategy


class ReplicatedExtended(StrategyExtended):
    """One replica for each of `devices`, and a component of each variable.

    They are all the replicas there are, unless a subclass has more processes.
    """

    pads_input = True
    """Whether replicas without a batch get an empty one, so that all of it is seen."""

    def __init__(
        self, strategy: Strategy, devices: tuple[str, ...], ops: CrossDeviceOps
    ) -> None:
        super().__init__(strategy)
        self.devices = self.variable_devices = devices
        self.replica_ids = tuple(range(len(devices)))
        self.num_replicas_in_sync = len(devices)
        self._ops = ops
        self._everywhere = Mirrored(devices)

    @property
    def last_communication(self) -> Communication | None:
        """How the latest reduction was done; None before the first."""
        return self._ops.last

    def variable_kind(self, on_read: bool) -> str:
        """Return ON_READ for a variable that is combined when read, else MIRRORED."""
        return ON_READ if on_read else MIRRORED

    def reduced(self, reduce_op: ReduceOp, values: list[Any]) -> Any:
        """Return the combination over all replicas; `values` are the local ones'."""
        return self._ops.reduce(reduce_op, PerReplica(values), values[0])

    def reduce_pairs(
        self,
        reduce_op: ReduceOp,
        pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions | None,
    ) -> list[Any]:
        """Do `batch_reduce_to`: a mirrored value is its own MEAN and has no SUM."""
        results: list[Any] = [delivered(value, to) for value, to in pairs]
        moving = []
        for at, (value, to) in enumerate(pairs):
            if is_mirrored(value):
                if reduce_op is ReduceOp.SUM:
                    self.refuse(
                        StructureError(
                            "SUM of a mirrored value, which is the same on all "
                            "replicas: reduce what they return from run() instead"
                        )
                    )
            elif has_components(value):
                self._check_components(value)
                moving.append((at, value, to))
            elif (alone := self.contribution(reduce_op, value)) is not None:
                moving.append((at, alone, to))
        if moving:
            batch = [(value, to) for _, value, to in moving]
            reduced = self._ops.batch_reduce(reduce_op, batch, options)
            for (at, _, _), result in zip(moving, reduced, strict=True):
                results[at] = result
        return results

    def contribution(self, reduce_op: ReduceOp, value: Any) -> PerReplica | None:
        """Return what a value without components means; None for itself.

        In one process it is the same on all replicas: its own MEAN. Of SUM only zeros
        have one, and a value of a single replica.
        """
        if len(self.replica_ids) == 1 or reduce_op is ReduceOp.MEAN:
            return None
        if isinstance(value, IndexedSlices) or np.any(plain(value)):
            raise ValueError(
                f"SUM of {value!r}, which has no components, over "
                f"{self.num_replicas_in_sync} replicas: reduce what the replicas "
                "return from run() instead"
            )
        return None

    def all_reduce_lists(
        self,
        reduce_op: ReduceOp,
        lists: list[list[Any]],
        options: CommunicationOptions | None,
    ) -> list[list[Any]]:
        """Reduce arrays in a batch and registered packs where they are."""
        given, columns = self._hints(options), _columns(lists)
        results: list[Sequence[Any]] = [[]] * len(columns)
        others = []
        for at, parts in enumerate(columns):
            if hasattr(parts[0], "flats"):
                results[at] = self._packed().in_place(reduce_op, parts, given)
            else:
                others.append(at)
        arrays = [tuple(map(plain, columns[at])) for at in others]
        reduced = self._ops.all_reduce_implementation(reduce_op, arrays, given)
        for at, result in zip(others, reduced, strict=True):
            results[at] = result
        return [[result[index] for result in results] for index in range(len(lists))]

    def start_all_reduce_lists(
        self,
        reduce_op: ReduceOp,
        lists: list[list[Any]],
        options: CommunicationOptions | None,
    ) -> list[list[Pack]]:
        """Start `all_reduce_lists`; return each local replica's packs."""
        values = [list(map(plain, parts)) for parts in _columns(lists)]
        dense = all(local_reduce.is_dense(parts[0]) for parts in values)
        at_once = self.comm is None and any(p is not None for p in self.places)
        if not dense or at_once or not isinstance(self._ops, CollectiveAllReduce):
            return super().start_all_reduce_lists(reduce_op, lists, options)
        given = checked(options)
        under_way = self._ops.start(reduce_op, values, given)
        if len(lists) == 1:
            return [[Pack(places, wait) for places, wait in under_way]]
        # One may change its results before another has got them.
        return [
            [Pack(places, _copying(wait, place)) for places, wait in under_way]
            for place in self.places
        ]

    def all_gather_lists(
        self, lists: list[list[Any]], axis: int, options: CommunicationOptions | None
    ) -> list[list[Any]]:
        """Join array by array."""
        given = self._hints(options)
        columns = [
            self._ops.gather_implementation(
                PerReplica([plain(part) for part in parts]),
                self._everywhere,
                axis,
                given,
            )
            for parts in _columns(lists)
        ]
        return [
            [select(index, column) for column in columns] for index in range(len(lists))
        ]

    def gather_to(
        self, value: Any, axis: int, options: CommunicationOptions | None = None
    ) -> Any:
        """Join the components of `value` along `axis`; of a plain value, itself."""
        if isinstance(value, IndexedSlices):
            local_reduce.check_axis([value], axis)
        parts = value if has_components(value) else self.gathered_alone(value)
        if parts is None:
            return value
        self._check_components(parts)
        given = self._hints(options)
        joining = per_replica(parts)
        home = joining.values[0]
        return self._ops.gather_implementation(joining, home, axis, given)

    def gathered_alone(self, value: Any) -> PerReplica | None:
        """Return what a value without components means to gather; None for itself."""
        return None

    def spread(self, tensor: Any, destinations: Any) -> Any:
        """Do `broadcast_to` with arguments that are checked."""
        return self._ops.broadcast(tensor, destinations)

    def update_components(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        """Call `fn` with each local component; what they return is read afterwards."""
        if not isinstance(var, Variable) or not self.variable_created_in_scope(var):
            raise StructureError(f"{var!r} is not a variable of {self._strategy!r}")
        results = []
        for index, component in enumerate(var.values):
            with (
                on(place_of(component.read_value())),
                contexts.entered(contexts.Mode(self._strategy, None, index)),
            ):
                named = select(index, kwargs)
                results.append(fn(component, *select(index, args), **named))
        if not group:
            return nest.map_structure(lambda *leaves: leaves, *results)
        if len(results) == 1:
            return results[0]
        read = [nest.map_structure(_read, result) for result in results]
        return regroup(read, Mirrored)

    def call_for_each_replica(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: RunOptions | None = None,
    ) -> Any:
        """Call `fn` as each local replica: in threads where there are several."""
        count = len(self.replica_ids)
        if count == 1:
            return super().call_for_each_replica(fn, args, kwargs, options)
        streams = current_streams(self.places)
        meeting = Meeting(
            count,
            partial(contexts.entered, contexts.Mode(self._strategy)),
            concurrent=bool(options and options.concurrent),
        )

        def body(index: int) -> Any:
            replica_id = np.int32(self.replica_ids[index])
            with (
                working(self.places[index], streams[index]),
                ReplicaContext(self._strategy, replica_id, index, meeting),
            ):
                return fn(*select(index, list(args)), **select(index, dict(kwargs)))

        return regroup(meeting.run(body), PerReplica)

    def distribute_values(self, value_fn: Callable[[ValueContext], Any]) -> PerReplica:
        """Return what `value_fn` gives for each local replica."""
        size = self.num_replicas_in_sync
        return PerReplica([value_fn(ValueContext(i, size)) for i in self.replica_ids])

    def distribute_dataset(
        self, dataset: Iterable[Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Return the local replicas' pieces of each batch."""
        return distribute(
            dataset,
            self._input_context,
            self.comm,
            options,
            self.pads_input,
            self.places,
        )

    def distribute_from_function(
        self,
        dataset_fn: Callable[[InputContext], Iterable[Any]],
        options: InputOptions | None = None,
    ) -> DistributedDataset:
        """Return the batches that `dataset_fn` makes for this process."""
        return from_function(
            dataset_fn,
            self._input_context,
            self.comm,
            options,
            self.pads_input,
            self.places,
        )

    @property
    def _input_context(self) -> InputContext:
        size, rank = (self.comm.size, self.comm.rank) if self.comm else (1, 0)
        return InputContext(size, rank, self.num_replicas_in_sync)

    def _check_components(self, value: Any) -> None:
        found, wanted = len(value.values), len(self.replica_ids)
        if found != wanted:
            self.refuse(
                StructureError(
                    f"a value with {found} component(s) for {wanted} local replica(s) "
                    f"of {self._strategy!r}"
                )
            )

    def _hints(self, options: CommunicationOptions | None) -> CommunicationOptions:
        return self.agreed(partial(checked, options))

    def _packed(self) -> CollectiveAllReduce:
        if isinstance(self._ops, CollectiveAllReduce):
            return self._ops
        raise StructureError(
            f"registered packs are reduced by collectives, not by {self._ops!r}"
        )


def is_mirrored(value: Any) -> bool:
    """Return whether a value is the same on all replicas by its type."""
    is_variable = isinstance(value, Variable) and value.kind == MIRRORED
    return is_variable or isinstance(value, Mirrored)


def has_components(value: Any) -> bool:
    """Return whether a value has a part for each local replica."""
    if isinstance(value, Variable):
        return value.kind in (MIRRORED, ON_READ)
    return isinstance(value, DistributedValues)


def _columns(lists: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Return the parts of each value, from each replica's list of values."""
    lengths = [len(one) for one in lists]
    if len(set(lengths)) > 1:
        raise StructureError(
            f"the local replicas have {lengths} values; wanted as many on each"
        )
    return list(zip(*lists, strict=True))


def _copying(wait: Callable[[], list[Any]], place: Place) -> Callable[[], list[Any]]:
    """Return what waits for results too, and gets memory of its own for them."""
    return lambda: [
        copied(array, place_of(array) if place_of(array) is None else place)
        for array in wait()
    ]


def _read(leaf: Any) -> Any:
    return leaf.read_value() if isinstance(leaf, Component) else leaf
