"""The cluster of a Slurm job step, from the variables that `srun` sets."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from strategy.cluster_resolver.hostlist import expand_hostlist, expand_tasks_per_node
from strategy.cluster_resolver.resolver import ClusterResolver
from strategy.cluster_resolver.spec import ClusterSpec


class SlurmClusterResolver(ClusterResolver):
    """The tasks of this step, dealt out to jobs in the order of the jobs' names.

    An address is `host:port`, where port is `port_base` and the task's place on its
    host. Tasks are numbered as Slurm does it, host after host in the step's list.

    Raises `RuntimeError` outside of a step, for jobs whose tasks are not as many as the
    step's, and for more GPUs than a node has.
    """

    def __init__(
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: Mapping[str, int] | int | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str = "grpc",
    ) -> None:
        """Read the variables of the step.

        Args:
            jobs: the number of tasks of each job; all are workers by default.
            port_base: the port of the first task on a host.
            gpus_per_node: by default what CUDA_VISIBLE_DEVICES lists, else those that
                nvidia-smi shows.
            gpus_per_task: by default an equal part of the node's.
            tasks_per_node: one number, or one for each host, in place of the step's.
            auto_set_gpu: whether `cluster_spec` limits CUDA_VISIBLE_DEVICES to this
                task's devices.
            rpc_layer: the prefix of addresses.
        """
        self._rank = int(_variable("PROCID"))
        total = int(_variable("STEP_NUM_TASKS"))
        hosts = expand_hostlist(_variable("STEP_NODELIST"))
        self._tasks = _tasks_of_hosts(hosts, tasks_per_node)
        self._jobs = dict(jobs) if jobs else {"worker": total}
        if sum(self._jobs.values()) != total:
            raise RuntimeError(
                f"jobs {self._jobs} have {sum(self._jobs.values())} tasks, the Slurm "
                f"step has {total}"
            )
        self._port_base, self._auto_set_gpu = port_base, auto_set_gpu
        self.rpc_layer = rpc_layer
        self._devices = _devices() if gpus_per_node is None else None
        most = max(self._tasks.values())
        node = len(self._devices or ()) if gpus_per_node is None else gpus_per_node
        self._gpus_per_task = node // most if gpus_per_task is None else gpus_per_task
        if most * self._gpus_per_task > node:
            raise RuntimeError(
                f"{most} tasks of {self._gpus_per_task} GPU(s) each on a node; it has "
                f"{node}"
            )

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster, and learn which of its tasks this process is."""
        addresses = [
            (f"{host}:{self._port_base + place}", place)
            for host, count in self._tasks.items()
            for place in range(count)
        ]
        cluster, start = {}, 0
        for job, count in sorted(self._jobs.items()):
            cluster[job] = [address for address, _ in addresses[start : start + count]]
            if start <= self._rank < start + count:
                self.task_type, self.task_id = job, self._rank - start
            start += count
        if self._auto_set_gpu and self._gpus_per_task:
            self._set_gpu(addresses[self._rank][1])
        return ClusterSpec(cluster)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Return job and index of this process, None until `cluster_spec` was asked."""
        return self.task_type, self.task_id

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> Mapping[str, int]:
        """Return the number of GPUs of a task."""
        return {"GPU": self._gpus_per_task}

    def _set_gpu(self, place: int) -> None:
        """Leave CUDA the devices of the task at one place on its host.

        The names stay as they were: they need not be numbers.
        """
        first = place * self._gpus_per_task
        wanted = range(first, first + self._gpus_per_task)
        names = self._devices or [str(number) for number in range(wanted.stop)]
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names[gpu] for gpu in wanted)


def _variable(name: str) -> str:
    value = os.environ.get(f"SLURM_{name}")
    if value is None:
        raise RuntimeError(
            f"SLURM_{name} is not set; wanted a Slurm job step: srun python script.py"
        )
    return value


def _tasks_of_hosts(
    hosts: list[str], given: Mapping[str, int] | int | None
) -> dict[str, int]:
    """Return the number of tasks of each host, in the step's order."""
    if isinstance(given, Mapping):
        return {host: given[host] for host in hosts}
    if given is not None:
        return dict.fromkeys(hosts, given)
    counts = expand_tasks_per_node(_variable("STEP_TASKS_PER_NODE"))
    if len(counts) != len(hosts):
        raise RuntimeError(
            f"SLURM_STEP_NODELIST has {len(hosts)} hosts, "
            f"SLURM_STEP_TASKS_PER_NODE has {len(counts)}"
        )
    return dict(zip(hosts, counts, strict=True))


def _devices() -> list[str]:
    """Return the names of this node's GPUs, as CUDA_VISIBLE_DEVICES writes them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip()]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(
        ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=60
    )
    return [str(number) for number, _ in enumerate(listed.stdout.splitlines())]
