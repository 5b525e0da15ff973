"""The cluster of the pods that Kubernetes runs."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from strategy.cluster_resolver.resolver import ClusterResolver
from strategy.cluster_resolver.spec import ClusterSpec


class KubernetesExecutableLocation(enum.Enum):
    """Whether this process is one of the cluster's."""

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


class KubernetesClusterResolver(ClusterResolver):
    """The running pods that label selectors find, asked for on every access.

    Which of them this process is it does not know: set `task_type` and `task_id`.
    """

    def __init__(
        self,
        job_to_label_mapping: Mapping[str, Sequence[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str = "grpc",
        override_client: Any = None,
        executable_location: KubernetesExecutableLocation = (
            KubernetesExecutableLocation.WITHIN_CLUSTER
        ),
    ) -> None:
        """Connect to the cluster.

        Args:
            job_to_label_mapping: the selectors of each job's pods; by default
                `job-name=tensorflow` for `worker`.
            tf_server_port: the port of all addresses.
            rpc_layer: the prefix of addresses.
            override_client: an object with `list_pod_for_all_namespaces`; by default
                the package `kubernetes` makes one: `ImportError` without it.
            executable_location: where the access data are: the pod's own, or those of
                the user.
        """
        self._jobs = job_to_label_mapping or {"worker": ["job-name=tensorflow"]}
        self._port, self.rpc_layer = tf_server_port, rpc_layer
        self._client = override_client or _client(executable_location)

    def cluster_spec(self) -> ClusterSpec:
        """Return `host_ip:port` of each pod, pods by name.

        Raises `RuntimeError` for a pod that does not run.
        """
        cluster: dict[str, list[str]] = {}
        for job, selectors in self._jobs.items():
            cluster[job] = []
            for selector in selectors:
                found = self._client.list_pod_for_all_namespaces(
                    label_selector=selector
                )
                for pod in sorted(found.items, key=lambda pod: pod.metadata.name):
                    if pod.status.phase != "Running":
                        raise RuntimeError(
                            f"pod {pod.metadata.name} is {pod.status.phase}; wanted "
                            "all pods of the cluster Running"
                        )
                    cluster[job].append(f"{pod.status.host_ip}:{self._port}")
        return ClusterSpec(cluster)


def _client(location: KubernetesExecutableLocation) -> Any:
    try:
        import kubernetes
    except ImportError:
        raise ImportError(
            "KubernetesClusterResolver needs the package kubernetes (pip install "
            "kubernetes), or an override_client"
        ) from None
    if location is KubernetesExecutableLocation.OFF_CLUSTER:
        kubernetes.config.load_kube_config()
    else:
        kubernetes.config.load_incluster_config()
    return kubernetes.client.CoreV1Api()
