"""The cluster that the variable TF_CONFIG describes."""

from __future__ import annotations

import json
import os
from typing import Any

from strategy.cluster_resolver.resolver import ClusterResolver
from strategy.cluster_resolver.spec import ClusterSpec, index_of
from strategy.errors import ClusterError


class TFConfigClusterResolver(ClusterResolver):
    """Reads the JSON in the variable TF_CONFIG, anew on every access.

    Its text is `{"cluster": {job: [address, ...]}, "task": {"type": job, "index": i}}`.
    What is given here wins. Raises `ClusterError` naming the field that is wrong.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._given = {"type": task_type, "index": task_id, "rpc_layer": rpc_layer}
        self.environment = environment

    @property
    def task_type(self) -> str | None:
        """The job of this process, None when nothing says so."""
        value = self._given["type"] or _table(_tf_config(), "task").get("type")
        return None if value is None else str(value)

    @task_type.setter
    def task_type(self, value: str | None) -> None:
        self._given["type"] = value

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job, None when nothing says so."""
        value = self._given["index"]
        if value is None:
            value = _table(_tf_config(), "task").get("index")
        return None if value is None else index_of("TF_CONFIG task.index", value)

    @task_id.setter
    def task_id(self, value: int | None) -> None:
        self._given["index"] = value

    @property
    def rpc_layer(self) -> str | None:  # type: ignore[override]
        """The prefix of addresses, such as `grpc`."""
        value = self._given["rpc_layer"] or _tf_config().get("rpc_layer")
        return None if value is None else str(value)

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster, an empty one without TF_CONFIG."""
        jobs = _table(_tf_config(), "cluster")
        for job, tasks in jobs.items():
            if not isinstance(tasks, (list, dict)):
                raise ClusterError(
                    f"TF_CONFIG cluster.{job} is {tasks!r}; wanted a list of addresses"
                )
        return ClusterSpec(jobs)

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return TF_CONFIG's session_master, or the address of a task.

        A cluster of one task has '', since nobody else is there to be asked.
        """
        master = _tf_config().get("session_master")
        if master:
            return str(master)
        spec = self.cluster_spec()
        if sum(spec.num_tasks(job) for job in spec.jobs) <= 1:
            return ""
        return super().master(task_type, task_id, rpc_layer)


def _tf_config() -> dict[str, Any]:
    """Return what TF_CONFIG says, {} when it is not set or blank."""
    text = os.environ.get("TF_CONFIG", "")
    if not text.strip():
        return {}
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ClusterError(
            f"TF_CONFIG is not valid JSON: {error.msg} at line {error.lineno} "
            f"column {error.colno} of {text[:200]!r}"
        ) from None
    if not isinstance(config, dict):
        raise ClusterError(f"TF_CONFIG is {text[:200]!r}; wanted a JSON object {{...}}")
    return config


def _table(config: dict[str, Any], field: str) -> dict[str, Any]:
    """Return one object in TF_CONFIG, {} when it is not there."""
    value = config.get(field, {})
    if not isinstance(value, dict):
        raise ClusterError(f"TF_CONFIG {field} is {value!r}; wanted an object {{...}}")
    return value
