"""Clusters that the program states, and several of them joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strategy.cluster_resolver.resolver import ClusterResolver
from strategy.cluster_resolver.spec import ClusterSpec


class SimpleClusterResolver(ClusterResolver):
    """The cluster that it is given.

    Raises `TypeError` unless `cluster_spec` is a `ClusterSpec` and `master` a str.
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        for name, given, wanted in (
            ("cluster_spec", cluster_spec, ClusterSpec),
            ("master", master, str),
        ):
            if not isinstance(given, wanted):
                raise TypeError(f"{name} is {given!r}; wanted a {wanted.__name__}")
        self._spec, self._master = cluster_spec, master
        self.task_type, self.task_id = task_type, task_id
        self.environment, self.rpc_layer = environment, rpc_layer
        self._accelerators = dict(num_accelerators or {})

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster."""
        return self._spec

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the address of a task, or the master that was given."""
        given = task_type is not None and task_id is not None
        address = (
            self._spec.task_address(str(task_type), int(task_id or 0))
            if given
            else self._master
        )
        return self.with_layer(address, rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> Mapping[str, int]:
        """Return what was given."""
        return self._accelerators


class UnionResolver(ClusterResolver):
    """The tasks of several resolvers; all else comes from the first one.

    Lists of addresses follow each other. Where a job has explicit indices they are
    merged: `KeyError` for one that occurs twice.
    """

    def __init__(self, *resolvers: ClusterResolver, **overrides: Any) -> None:
        """Join `resolvers`; `rpc_layer`, `task_type` and `task_id` override theirs."""
        if not resolvers:
            raise ValueError("no resolver; wanted one or more")
        if unknown := sorted(set(overrides) - {"rpc_layer", "task_type", "task_id"}):
            raise ValueError(
                f"unknown argument {', '.join(unknown)}; there are rpc_layer, "
                "task_type and task_id"
            )
        for resolver in resolvers:
            if not isinstance(resolver, ClusterResolver):
                raise TypeError(f"got {resolver!r}; wanted cluster resolvers")
        self._resolvers, first = resolvers, resolvers[0]
        self.environment = first.environment
        self.rpc_layer = overrides.get("rpc_layer", first.rpc_layer)
        self.task_type = overrides.get("task_type", first.task_type)
        self.task_id = overrides.get("task_id", first.task_id)

    def cluster_spec(self) -> ClusterSpec:
        """Return the tasks of all."""
        joined: dict[str, Any] = {}
        for resolver in self._resolvers:
            for job, tasks in resolver.cluster_spec().as_dict().items():
                joined[job] = _joined(job, joined.get(job, []), tasks)
        return ClusterSpec(joined)

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Return the address of a task, or the first resolver's master."""
        if task_type is None or task_id is None:
            return self._resolvers[0].master(rpc_layer=rpc_layer or self.rpc_layer)
        address = self.cluster_spec().task_address(task_type, task_id)
        return self.with_layer(address, rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> Mapping[str, int]:
        """Return what the first resolver says."""
        return self._resolvers[0].num_accelerators(task_type, task_id, config_proto)


def _joined(job: str, first: Any, second: Any) -> Any:
    if isinstance(first, list) and isinstance(second, list):
        return first + second
    tables = [
        dict(enumerate(tasks)) if isinstance(tasks, list) else tasks
        for tasks in (first, second)
    ]
    if twice := sorted(tables[0].keys() & tables[1].keys()):
        raise KeyError(f"job {job}: index {twice} occurs in two clusters")
    return {**tables[0], **tables[1]}
