"""Who takes part: a cluster's tasks, told by TF_CONFIG or derived from MPI."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import collectives
from strategy.errors import ClusterError

Tasks = Sequence[str] | Mapping[int | str, str]


class ClusterSpec:
    """The addresses of a cluster's tasks, by job (chief, worker, ps, evaluator)."""

    def __init__(self, jobs: Mapping[str, Tasks] | None = None) -> None:
        self._jobs = {job: _by_index(tasks) for job, tasks in (jobs or {}).items()}

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Return lists of addresses; a dict where the indices have gaps."""
        return {
            job: tasks if list(tasks) != list(range(len(tasks))) else [*tasks.values()]
            for job, tasks in self._jobs.items()
        }

    def num_tasks(self, job: str) -> int:
        """Return the number of tasks in `job`, 0 if there is no such job."""
        return len(self._jobs.get(job, {}))

    def task_indices(self, job: str) -> list[int]:
        """Return the indices of the tasks in `job`, in order."""
        return list(self._jobs.get(job, {}))

    def task_address(self, job: str, index: int) -> str:
        """Return the address of one task; `ValueError` if there is none."""
        try:
            return self._jobs[job][index]
        except KeyError:
            raise ValueError(
                f"no task {job} {index}; the cluster has {self.as_dict()}"
            ) from None

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    __hash__ = None  # type: ignore[assignment]  # compares by content

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()})"


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
        """Return the address of a task (this one by default), '' for one process."""
        spec = self.cluster_spec()
        if sum(spec.num_tasks(job) for job in spec.jobs) <= 1:
            return ""
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            raise ValueError(f"which task is the master? task {job} {index} is given")
        layer = rpc_layer or self.rpc_layer
        address = spec.task_address(job, index)
        return f"{layer}://{address}" if layer else address


class MPIClusterResolver(ClusterResolver):
    """One worker for each MPI rank: the default when TF_CONFIG is absent.

    An address is `host:rank`. Nothing listens there: ranks talk through MPI.
    """

    def __init__(self, comm: collectives.Communicator | None = None) -> None:
        comm = collectives.world() if comm is None else comm
        hosts = [comm.topology.hosts[index] for index in comm.topology.host_of]
        addresses = [f"{host}:{rank}" for rank, host in enumerate(hosts)]
        self._spec = ClusterSpec({"worker": addresses})
        self.task_type, self.task_id = "worker", comm.rank

    def cluster_spec(self) -> ClusterSpec:
        """Return the one job, `worker`, with a task for each rank."""
        return self._spec


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
        return None if value is None else _index("TF_CONFIG task.index", value)

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
        """Return TF_CONFIG's session_master, or the address of a task."""
        master = _tf_config().get("session_master")
        return str(master) if master else super().master(task_type, task_id, rpc_layer)


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


def _by_index(tasks: Tasks) -> dict[int, str]:
    """Return the addresses of a job's tasks by their index, in order."""
    if not isinstance(tasks, Mapping):
        return dict(enumerate(tasks))
    return dict(sorted((_index("index of a task", key), tasks[key]) for key in tasks))


def _index(field: str, value: object) -> int:
    """Return a task's index, which JSON may hold as a number or as a string."""
    try:
        index = int(str(value))
    except ValueError:
        index = -1
    if index < 0:
        raise ClusterError(f"{field} is {value!r}; wanted a number from 0 up")
    return index
