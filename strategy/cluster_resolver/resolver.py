"""What all resolvers have in common."""

from __future__ import annotations

from collections.abc import Mapping

from strategy.cluster_resolver.spec import ClusterSpec


class ClusterResolver:
    """Says what the cluster is and which of its tasks this process is."""

    task_type: str | None = None
    task_id: int | None = None
    environment: str | None = ""
    rpc_layer: str | None = None

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster; an empty one means a single process."""
        raise NotImplementedError

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the address of a task (this one by default), '' if none is known."""
        spec = self.cluster_spec()  # some resolvers know their task only after this
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            return ""
        return self.with_layer(spec.task_address(job, index), rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> Mapping[str, int]:
        """Return how many devices of each kind a task has, {} where none is known."""
        return {}

    def with_layer(self, address: str, rpc_layer: str | None = None) -> str:
        """Return `address` with the prefix of a layer, by default this one's."""
        layer = rpc_layer or self.rpc_layer
        return f"{layer}://{address}" if layer else address
