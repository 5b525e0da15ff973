"""What a task's place in the cluster makes of it.

The names are those of TensorFlow's module. `cluster_spec` is a `ClusterSpec` or a dict
of jobs. Raises `ValueError` for a job that is none of `JOBS`, more than one chief or
evaluator, and a task that the cluster does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strategy.cluster_resolver.spec import ClusterSpec

JOBS = ("chief", "worker", "ps", "evaluator")
ALONE = ("chief", "evaluator")  # jobs of one task at most

Cluster = ClusterSpec | Mapping[str, Any]


def normalize_cluster_spec(cluster_spec: Cluster | None) -> ClusterSpec:
    """Return a `ClusterSpec`; None is the empty one."""
    if isinstance(cluster_spec, ClusterSpec):
        return cluster_spec
    return ClusterSpec(cluster_spec)


def id_in_cluster(cluster_spec: Cluster, task_type: str, task_id: int) -> int:
    """Return the number of a task among those that train, or that evaluate."""
    cluster = _checked(cluster_spec, task_type, task_id)
    if task_type == "ps":
        raise ValueError("a ps task holds variables and has no id among the workers")
    return task_id + (cluster.num_tasks("chief") if task_type == "worker" else 0)


def worker_count(cluster_spec: Cluster, task_type: str) -> int:
    """Return how many tasks train, or evaluate, together with one of this type."""
    cluster = _checked(cluster_spec, task_type, 0)
    if task_type == "ps":
        raise ValueError("a ps task holds variables and is not one of the workers")
    if task_type == "evaluator":
        return cluster.num_tasks("evaluator")
    return cluster.num_tasks("chief") + cluster.num_tasks("worker")


def is_chief(cluster_spec: Cluster | None, task_type: str, task_id: int) -> bool:
    """Return whether a task writes what all keep; in an empty cluster everybody."""
    cluster = normalize_cluster_spec(cluster_spec)
    if not cluster:
        return True
    _checked(cluster, task_type, task_id)
    if task_type == "worker":
        return task_id == 0 and not cluster.num_tasks("chief")
    return task_type in ALONE


def collective_leader(
    cluster_spec: Cluster | None, task_type: str, task_id: int
) -> str:
    """Return the first of the tasks that train, '' for one that trains with none."""
    cluster = normalize_cluster_spec(cluster_spec)
    if not cluster:
        return ""
    _checked(cluster, task_type, task_id)
    if task_type == "evaluator":
        return ""
    job = "chief" if cluster.num_tasks("chief") else "worker"
    return f"/job:{job}/replica:0/task:0"


def _checked(cluster_spec: Cluster, task_type: str, task_id: int) -> ClusterSpec:
    """Return the cluster, after checking it and that it has the task."""
    cluster = normalize_cluster_spec(cluster_spec)
    for job in cluster.jobs:
        if job not in JOBS:
            raise ValueError(f"job {job!r} in the cluster; wanted {' '.join(JOBS)}")
    for job in ALONE:
        if cluster.num_tasks(job) > 1:
            raise ValueError(f"{cluster.num_tasks(job)} tasks of job {job}; wanted one")
    if task_type not in JOBS:
        raise ValueError(f"task_type is {task_type!r}; wanted {' '.join(JOBS)}")
    if task_id not in cluster.task_indices(task_type):
        raise ValueError(f"no task {task_type} {task_id} in {cluster.as_dict()}")
    return cluster
