"""`ringfold cluster`: which task of the cluster each rank is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import collectives
from collectives.bench.usage import Parser, Usage, refuse
from strategy.cluster_check import checked_resolver
from strategy.cluster_resolver import MPIClusterResolver


def main(arguments: Sequence[str]) -> int:
    """Print the cluster that MPI started, or what TF_CONFIG would be on each rank."""
    parser = Parser(
        prog="ringfold cluster",
        description="Show the cluster that mpirun started: mpirun -n 4 ringfold "
        "cluster. A TF_CONFIG that is set is compared with it first.",
    )
    parser.add_argument(
        "--tf-config",
        action="store_true",
        help="print TF_CONFIG for each rank instead, one line of JSON each",
    )
    parser.add_argument(
        "--jobs",
        type=_jobs,
        metavar="JOB=N,…",
        help="the jobs that take the ranks in this order; default all worker",
    )
    parser.add_argument(
        "--port-base",
        type=int,
        default=8888,
        metavar="P",
        help="port of the first task on each host (default 8888)",
    )
    try:
        given = parser.parse_args(arguments)
    except Usage as usage:
        return refuse(usage)
    comm = collectives.world()
    checked_resolver(comm, None)
    resolver = MPIClusterResolver(comm, given.jobs, given.port_base)
    if comm.rank == 0:
        if given.tf_config:
            lines = [json.dumps(config) for config in resolver.tf_configs()]
        else:
            lines = _table(resolver)
        print("\n".join(lines), flush=True)
    return 0


def _table(resolver: MPIClusterResolver) -> list[str]:
    lines = [f"{'rank':>4}  {'task':14}address"]
    for rank, config in enumerate(resolver.tf_configs()):
        job, index = config["task"]["type"], config["task"]["index"]
        address = resolver.cluster_spec().task_address(job, index)
        lines.append(f"{rank:>4}  {f'{job} {index}':14}{address}")
    return lines


def _jobs(text: str) -> dict[str, int]:
    """Return {"chief": 1, "worker": 3} for chief=1,worker=3."""
    jobs = {}
    for item in text.split(","):
        job, _, count = item.partition("=")
        if not job or not count.isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r}; wanted JOB=N,…")
        jobs[job] = int(count)
    return jobs
