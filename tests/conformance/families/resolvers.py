"""Cluster resolvers and the places of tasks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from conformance.case import Case
from strategy import multi_worker_util
from strategy.cluster_resolver import (
    ClusterSpec,
    SimpleClusterResolver,
    SlurmClusterResolver,
    TFConfigClusterResolver,
    UnionResolver,
)
from strategy.cluster_resolver.hostlist import expand_hostlist, expand_tasks_per_node


@contextmanager
def environment(prefix: str, variables: dict[str, str]) -> Iterator[None]:
    """Have these variables, and no others that begin with `prefix`, for a while."""
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(prefix):
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _tf_config(read: Callable[[TFConfigClusterResolver], Any]) -> Callable[[Case], Any]:
    def run(case: Case) -> Any:
        config = case.inputs["TF_CONFIG"]
        text = config if isinstance(config, str) else json.dumps(config)
        variables = {} if config is None else {"TF_CONFIG": text}
        with environment("TF_CONFIG", variables):
            return read(TFConfigClusterResolver())

    return run


def _all(resolver: TFConfigClusterResolver) -> Any:
    return {
        "cluster": resolver.cluster_spec().as_dict(),
        "environment": resolver.environment,
        "rpc_layer": resolver.rpc_layer,
        "task_id": resolver.task_id,
        "task_type": resolver.task_type,
    }


def _masters(resolver: TFConfigClusterResolver) -> Any:
    return [
        resolver.master(),
        resolver.master("ps", 0),
        resolver.master(rpc_layer="x"),
    ]


def _simple(case: Case) -> Any:
    if isinstance(case.inputs.get("cluster_spec"), str):
        case.table("cluster_spec", {"plain dict": None})
        return SimpleClusterResolver({"worker": ["a:1"]})  # type: ignore[arg-type]
    given = dict(case.inputs)
    resolver = SimpleClusterResolver(ClusterSpec(given.pop("cluster", {})), **given)
    return [
        resolver.master(),
        resolver.master("worker", 1),
        dict(resolver.num_accelerators()),
        resolver.environment,
    ]


def _union(case: Case) -> Any:
    given = dict(case.inputs)
    overrides = given.pop("kwargs", {})
    resolvers = [
        SimpleClusterResolver(ClusterSpec(jobs)) if isinstance(jobs, dict) else jobs
        for jobs in given.values()
    ]
    return UnionResolver(*resolvers, **overrides).cluster_spec().as_dict()


def _slurm(case: Case) -> Any:
    with environment("SLURM_", case.inputs["env"]):
        resolver = SlurmClusterResolver(**case.inputs["kwargs"])
        return {
            "cluster": resolver.cluster_spec().as_dict(),
            "info": list(resolver.get_task_info()),
            "master": resolver.master("worker", 0),
            "acc": dict(resolver.num_accelerators()),
            "cvd": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }


def _place(case: Case) -> Any:
    cluster = case.inputs["cluster"]
    if "task_type" not in case.inputs:
        return [
            multi_worker_util.is_chief(cluster, job, index)
            for job in cluster
            for index in range(len(cluster[job]))
        ]
    job, index = case.inputs["task_type"], case.inputs["task_id"]
    calls: dict[str, Callable[[], Any]] = {
        "id_in_cluster": lambda: multi_worker_util.id_in_cluster(cluster, job, index),
        "is_chief": lambda: multi_worker_util.is_chief(cluster, job, index),
        "worker_count": lambda: multi_worker_util.worker_count(cluster, job),
        "collective_leader": lambda: multi_worker_util.collective_leader(
            cluster, job, index
        ),
    }
    return {name: _or_error(call) for name, call in calls.items()}


def _or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return {"error_type": type(error).__name__}


CASES = {
    "TFConfigClusterResolver": [
        _tf_config(_all),
        _tf_config(_masters),
        _tf_config(lambda resolver: resolver.master()),
        _tf_config(lambda resolver: resolver.cluster_spec().as_dict()),
    ],
    "SimpleClusterResolver": _simple,
    "UnionResolver": _union,
    "SlurmClusterResolver": _slurm,
    "slurm expand_hostlist": lambda case: expand_hostlist(case.inputs["hostlist"]),
    "slurm expand_tasks_per_node": lambda case: expand_tasks_per_node(
        case.inputs["tasks"]
    ),
    "multi_worker_util": _place,
}
