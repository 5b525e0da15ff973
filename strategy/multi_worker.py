"""Replicas on several MPI ranks, with variables mirrored on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import collectives
from strategy.base import Strategy
from strategy.cluster_check import checked_resolver
from strategy.cluster_resolver import ClusterResolver
from strategy.collective_all_reduce import CollectiveAllReduce
from strategy.devices import place_named
from strategy.errors import ClusterError
from strategy.options import CommunicationImplementation, CommunicationOptions
from strategy.placing import Place, moved, on_host
from strategy.reduce_op import ReduceOp
from strategy.replicated import ReplicatedExtended
from strategy.values import PerReplica, plain
from strategy.worker_devices import agreed_devices, without_gpu


class MultiWorkerMirroredStrategy(Strategy):
    """Data-parallel training over the ranks of an MPI job.

    Started by `mpirun -n N`, each rank is a worker; without a launcher there is one.
    A worker has a replica for each of its `devices`, which are as many on every rank:
    by default one, on a GPU where the rank sees one, else on its CPU. The replicas of a
    rank are added up there, and one collective goes across. The cluster comes from MPI;
    where TF_CONFIG is set, or a resolver is given, it must agree with MPI. A rank's
    (first) GPU becomes the current one of the thread that makes the strategy.

    Construction is collective. Raises, the same on every rank, `ClusterError` (a
    `ValueError`) if the cluster and MPI disagree, or the ranks' arguments differ, and
    `collectives.UnsupportedError` for an implementation that cannot run.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        devices: Sequence[str] | None = None,
    ) -> None:
        comm = collectives.world()
        options = _agreed_options(comm, communication_options)
        resolver = checked_resolver(comm, cluster_resolver)
        super().__init__(MultiWorkerExtended(self, comm, resolver, options, devices))


class MultiWorkerExtended(ReplicatedExtended):
    """Replicas on several ranks, as many on each."""

    experimental_between_graph = True

    def __init__(
        self,
        strategy: Strategy,
        comm: collectives.Communicator,
        resolver: ClusterResolver,
        options: CommunicationOptions,
        devices: Sequence[str] | None,
    ) -> None:
        job, task = resolver.task_type or "worker", resolver.task_id or 0
        everywhere = agreed_devices(comm, devices, job, task)
        names, place = everywhere[comm.rank], place_named(everywhere[comm.rank][0])
        if place is not None:  # what this rank does with results is done there too
            collectives.gpu.cupy().cuda.Device(place).use()
        lacking = without_gpu(everywhere)
        self._collective = CollectiveAllReduce(comm, options, place, lacking)
        if options.implementation is CommunicationImplementation.NCCL:
            _try_nccl(comm, place)
        super().__init__(strategy, names, self._collective)
        self.comm: collectives.Communicator = comm
        first = comm.rank * len(names)
        self.replica_ids = tuple(range(first, first + len(names)))
        self.num_replicas_in_sync = comm.size * len(names)
        self.cluster_resolver = resolver
        self.should_checkpoint = self.should_save_summary = comm.rank == 0

    def initial_values(self, value: Any) -> list[Any]:
        """Return the chief's `value` for each local replica: a collective call."""
        given = self._collective.broadcast_first(on_host(value))
        return super().initial_values(given)

    def first(self, values: list[Any]) -> Any:
        """Return what rank 0's first replica has: a collective call."""
        return self._collective.broadcast_first(values[0])

    def contribution(self, reduce_op: ReduceOp, value: Any) -> PerReplica | None:
        """Return a value without components as that of each replica of this rank.

        A single rank with several replicas is what a mirrored strategy is.
        """
        if self._is_mirrored():
            return super().contribution(reduce_op, value)
        return PerReplica([plain(value)] * len(self.replica_ids))

    def gathered_alone(self, value: Any) -> PerReplica | None:
        """Return a value without components as that of each replica of this rank."""
        if self._is_mirrored():
            return None
        return PerReplica([plain(value)] * len(self.replica_ids))

    def _is_mirrored(self) -> bool:
        return self.comm.size == 1 < len(self.replica_ids)


def _try_nccl(comm: collectives.Communicator, place: Place) -> None:
    """Open NCCL; the same `UnsupportedError` on every rank if one cannot."""
    comm.all_reduce(moved(np.zeros(1, np.float32), place), algorithm="nccl")


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
