"""One replica for each MPI rank, with variables mirrored on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import collectives
from strategy.base import Strategy
from strategy.cluster_check import checked_resolver
from strategy.cluster_resolver import ClusterResolver
from strategy.cross_device_ops import CollectiveAllReduce, Communication
from strategy.distributed_dataset import (
    DistributedDataset,
    distribute,
    from_function,
)
from strategy.errors import ClusterError, StructureError
from strategy.extended import StrategyExtended
from strategy.input_context import InputContext, InputOptions
from strategy.options import CommunicationOptions
from strategy.reduce_op import ReduceOp
from strategy.values import (
    Array,
    DistributedValues,
    Mirrored,
    PerReplica,
    ValueContext,
    plain,
)
from strategy.variable_rules import MIRRORED, ON_READ
from strategy.variables import Variable


class MultiWorkerMirroredStrategy(Strategy):
    """Data-parallel training over the ranks of an MPI job.

    Started by `mpirun -n N`, each rank is a worker with one replica on its CPU; without
    a launcher there is one. The cluster comes from MPI; where TF_CONFIG is set, or a
    resolver is given, it must agree with MPI.

    Construction is collective. Raises, the same on every rank, `ClusterError` (a
    `ValueError`) if the cluster and MPI disagree, or the ranks' options differ, and
    `collectives.UnsupportedError` for an implementation that cannot run.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
    ) -> None:
        comm = collectives.world()
        options = _agreed_options(comm, communication_options)
        resolver = checked_resolver(comm, cluster_resolver)
        super().__init__(MultiWorkerExtended(self, comm, resolver, options))

    @property
    def extended(self) -> MultiWorkerExtended:
        """The machinery, and the methods that library code needs."""
        assert isinstance(self._extended, MultiWorkerExtended)
        return self._extended

    def __repr__(self) -> str:
        return (
            f"<MultiWorkerMirroredStrategy of {self.num_replicas_in_sync} replica(s)>"
        )


class MultiWorkerExtended(StrategyExtended):
    """Replicas on several ranks, one on each."""

    def __init__(
        self,
        strategy: Strategy,
        comm: collectives.Communicator,
        resolver: ClusterResolver,
        options: CommunicationOptions,
    ) -> None:
        super().__init__(strategy)
        self.comm: collectives.Communicator = comm
        self._ops = CollectiveAllReduce(comm, options)
        job, task = resolver.task_type, resolver.task_id
        self.worker_devices = (f"/job:{job}/replica:0/task:{task}/device:CPU:0",)
        self.replica_ids = (comm.rank,)
        self.num_replicas_in_sync = comm.size
        self.cluster_resolver = resolver
        self.should_checkpoint = comm.rank == 0

    @property
    def last_communication(self) -> Communication | None:
        """How the latest all-reduce moved its arrays; None before the first."""
        return self._ops.last

    def variable_kind(self, on_read: bool) -> str:
        """Return ON_READ for a variable that is combined when read, else MIRRORED."""
        return ON_READ if on_read else MIRRORED

    def initial_values(self, value: Any) -> list[Any]:
        """Return the chief's `value`: a collective call."""
        return [self._ops.broadcast(value)]

    def first_to_all(self, value: Any) -> Any:
        """Return rank 0's `value`: a collective call."""
        return self._ops.broadcast(_component(value))

    def reduce_values(
        self,
        reduce_op: ReduceOp,
        values: Sequence[Any],
        options: CommunicationOptions | None = None,
    ) -> list[Any]:
        """Return the combination of each of `values` over all ranks.

        A plain value is this rank's contribution. A value that is the same everywhere
        is its own MEAN; its SUM is refused.
        """
        moved = [index for index, value in enumerate(values) if not _is_mirrored(value)]
        if reduce_op is ReduceOp.SUM and len(moved) < len(values):
            raise StructureError(
                "SUM of a mirrored value, which is the same on all replicas: reduce "
                "what the replicas return from run() instead"
            )
        results = [_component(value) for value in values]
        arrays = [results[index] for index in moved]
        if arrays:
            reduced = self._ops.all_reduce(reduce_op, arrays, options)
            for index, array in zip(moved, reduced, strict=True):
                results[index] = array
        return results

    def gather_to(
        self, value: Any, axis: int, options: CommunicationOptions | None = None
    ) -> Any:
        """Return the components on all ranks joined along `axis`."""
        return self._ops.all_gather(_component(value), axis, options)

    def distribute_values(self, value_fn: Callable[[ValueContext], Any]) -> PerReplica:
        """Return what `value_fn` gives for this rank's replica."""
        size = self.num_replicas_in_sync
        return PerReplica([value_fn(ValueContext(i, size)) for i in self.replica_ids])

    def distribute_dataset(
        self, dataset: Iterable[Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Return this rank's pieces of each batch."""
        return distribute(dataset, self._input_context, self.comm, options)

    def distribute_from_function(
        self,
        dataset_fn: Callable[[InputContext], Iterable[Any]],
        options: InputOptions | None = None,
    ) -> DistributedDataset:
        """Return the batches that `dataset_fn` makes for this rank."""
        return from_function(dataset_fn, self._input_context, self.comm, options)

    @property
    def _input_context(self) -> InputContext:
        return InputContext(self.comm.size, self.comm.rank, self.num_replicas_in_sync)


def _component(value: Any) -> Array:
    """Return the array that this rank contributes."""
    array: Array = plain(
        value.values[0] if isinstance(value, DistributedValues) else value
    )
    return array


def _is_mirrored(value: Any) -> bool:
    is_variable = isinstance(value, Variable) and value.kind == MIRRORED
    return is_variable or isinstance(value, Mirrored)


def _agreed_options(
    comm: collectives.Communicator, options: CommunicationOptions | None
) -> CommunicationOptions:
    """Return the options, after checking that all ranks have the same."""
    given = CommunicationOptions() if options is None else options
    if not isinstance(given, CommunicationOptions):
        raise ValueError(
            f"communication_options is {given!r}; wanted a CommunicationOptions"
        )
    everywhere = comm.all_gather_object(given)
    for rank, theirs in enumerate(everywhere):
        if theirs != everywhere[0]:
            raise ClusterError(
                f"communication_options differ: rank 0 has {everywhere[0]}, "
                f"rank {rank} has {theirs}"
            )
    return given
