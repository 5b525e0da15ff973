"""The tasks of a cluster and their addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strategy.errors import ClusterError

Tasks = Sequence[str] | Mapping[Any, str]


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


def _by_index(tasks: Tasks) -> dict[int, str]:
    """Return the addresses of a job's tasks by their index, in order."""
    if not isinstance(tasks, Mapping):
        return dict(enumerate(tasks))
    return dict(sorted((index_of("index of a task", key), tasks[key]) for key in tasks))


def index_of(field: str, value: object) -> int:
    """Return a task's index, which JSON may hold as a number or as a string."""
    try:
        index = int(str(value))
    except ValueError:
        index = -1
    if index < 0:
        raise ClusterError(f"{field} is {value!r}; wanted a number from 0 up")
    return index
