"""The cluster that MPI started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import collectives
from strategy.cluster_resolver.resolver import ClusterResolver
from strategy.cluster_resolver.spec import ClusterSpec
from strategy.errors import ClusterError


class MPIClusterResolver(ClusterResolver):
    """A task for each MPI rank: the default where TF_CONFIG is not set.

    An address is `host:port`, where port is `port_base` and the rank's place on its
    host. Ringfold listens at none of them: ranks talk through MPI.
    """

    def __init__(
        self,
        comm: collectives.Communicator | None = None,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
    ) -> None:
        """Describe the ranks of `comm`, by default all of the job.

        Args:
            comm: the ranks.
            jobs: the number of tasks of each job, which take the ranks in this order;
                all are workers by default. `ClusterError` unless they add up.
            port_base: the port of the first task on each host.
        """
        comm = collectives.world() if comm is None else comm
        jobs = {"worker": comm.size} if jobs is None else jobs
        if sum(jobs.values()) != comm.size:
            raise ClusterError(
                f"jobs {dict(jobs)} have {sum(jobs.values())} tasks, MPI has "
                f"{comm.size} rank(s)"
            )
        addresses, places = [], Counter[int]()
        for host in comm.topology.host_of:
            name = comm.topology.hosts[host]
            addresses.append(f"{name}:{port_base + places[host]}")
            places[host] += 1
        self._tasks = [(job, index) for job in jobs for index in range(jobs[job])]
        cluster: dict[str, list[str]] = {job: [] for job in jobs}
        for (job, _), address in zip(self._tasks, addresses, strict=True):
            cluster[job].append(address)
        self._spec = ClusterSpec(cluster)
        self.task_type, self.task_id = self._tasks[comm.rank]

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster."""
        return self._spec

    def tf_configs(self) -> list[dict[str, Any]]:
        """Return what TF_CONFIG would be on each rank, as JSON holds it."""
        return [
            {
                "cluster": self._spec.as_dict(),
                "task": {"type": job, "index": index},
            }
            for job, index in self._tasks
        ]
