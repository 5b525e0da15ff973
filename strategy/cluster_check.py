"""The cluster that was described against the ranks that MPI started.

Every rank states its facts, all facts are gathered, and every rank draws the same
conclusion from them: one rank's wrong TF_CONFIG is an error everywhere, at once,
instead of a job that waits for tasks which nobody started.
"""

from __future__ import annotations

import shlex
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import collectives
from strategy.cluster_resolver import (
    ClusterResolver,
    ClusterSpec,
    MPIClusterResolver,
    TFConfigClusterResolver,
)
from strategy.errors import ClusterError

TRAINERS = ("chief", "worker")  # the jobs whose tasks hold replicas, in rank order


@dataclass(frozen=True)
class Facts:
    """What one rank was told about the cluster and its own task."""

    spec: ClusterSpec
    task_type: str | None = None
    task_id: int | None = None
    problem: str = ""
    """Why the description could not be read, '' when it could."""


def checked_resolver(
    comm: collectives.Communicator, resolver: ClusterResolver | None
) -> ClusterResolver:
    """Return what tells the cluster, after checking all ranks' facts against MPI.

    That is `resolver`, or TF_CONFIG where it is set, or MPI. Collective. Raises
    `ClusterError`, the same on all ranks.
    """
    source = "TF_CONFIG" if resolver is None else "cluster_resolver"
    asked = TFConfigClusterResolver() if resolver is None else resolver
    told = check_facts(comm.all_gather_object(read_facts(asked)), source)
    return asked if told else MPIClusterResolver(comm)


def read_facts(resolver: object) -> Facts:
    """Ask the resolver; what it raises becomes part of the facts."""
    if not isinstance(resolver, ClusterResolver):
        return Facts(
            ClusterSpec(),
            problem=f"cluster_resolver is {resolver!r}; wanted a resolver",
        )
    try:
        return Facts(resolver.cluster_spec(), resolver.task_type, resolver.task_id)
    except (ValueError, TypeError, RuntimeError) as error:
        return Facts(ClusterSpec(), problem=str(error))


def check_facts(facts: Sequence[Facts], source: str) -> bool:
    """Compare every rank's facts with the number of ranks, which is their number.

    `source` names where they come from, for the text of the error. Returns False
    if no rank was told of a cluster. Raises `ClusterError`, the same on all ranks.
    """
    for problem in sorted({fact.problem for fact in facts} - {""}):
        ranks = [rank for rank, fact in enumerate(facts) if fact.problem == problem]
        raise ClusterError(f"{problem} ({_ranks(ranks)})")
    told = [rank for rank, fact in enumerate(facts) if fact.spec]
    if not told:
        return False
    _check_cluster(facts, told, source)
    _check_tasks(facts, source)
    return True


def _check_cluster(facts: Sequence[Facts], told: list[int], source: str) -> None:
    """Check that all ranks were told of one cluster, and one of the right size."""
    size, first = len(facts), told[0]
    untold = sorted(set(range(size)) - set(told))
    if untold:
        raise ClusterError(
            f"{source} gives a cluster on {_ranks(told)} and none on {_ranks(untold)}"
        )
    spec = facts[first].spec
    for rank, fact in enumerate(facts):
        if fact.spec != spec:
            raise ClusterError(
                f"{source} cluster differs: rank {first} has {spec.as_dict()}, "
                f"rank {rank} has {fact.spec.as_dict()}"
            )
    tasks = sum(spec.num_tasks(job) for job in TRAINERS)
    if tasks != size:
        raise ClusterError(
            f"{source} cluster has {tasks} task(s) in chief and worker, MPI has {size} "
            f"rank(s): start as many ranks as tasks, {_mpirun(spec, tasks)}"
        )


def _check_tasks(facts: Sequence[Facts], source: str) -> None:
    """Check that the ranks are the cluster's tasks, each one once and in order."""
    spec = facts[0].spec
    order = [(job, index) for job in TRAINERS for index in spec.task_indices(job)]
    ranks_of = defaultdict(list)
    for rank, fact in enumerate(facts):
        for field, value in (("type", fact.task_type), ("index", fact.task_id)):
            if value is None:
                raise ClusterError(f"{source} task.{field} is missing on rank {rank}")
        if (fact.task_type, fact.task_id) not in order:
            field = "index" if fact.task_type in spec.jobs else "type"
            raise ClusterError(
                f"{source} task.{field}: rank {rank} is {fact.task_type} "
                f"{fact.task_id}; the cluster has {_names(order)}"
            )
        ranks_of[fact.task_type, fact.task_id].append(rank)
    for (job, index), ranks in ranks_of.items():
        if len(ranks) > 1:
            raise ClusterError(
                f"{source} task.index: {job} {index} is claimed by {_ranks(ranks)}; "
                f"every rank needs an index of its own, or no {source} at all: the "
                "cluster then comes from MPI"
            )
    for rank, (fact, task) in enumerate(zip(facts, order, strict=True)):
        if (fact.task_type, fact.task_id) != task:
            raise ClusterError(
                f"{source} task.index: rank {rank} is {fact.task_type} {fact.task_id}; "
                f"wanted {task[0]} {task[1]}, since ranks follow the cluster's order"
            )


def _mpirun(spec: ClusterSpec, tasks: int) -> str:
    """Return the command that starts the cluster's tasks where it wants them."""
    addresses = [
        spec.task_address(job, index)
        for job in TRAINERS
        for index in spec.task_indices(job)
    ]
    hosts = list(dict.fromkeys(each.rpartition(":")[0] or each for each in addresses))
    command = f"mpirun -n {tasks} {_program()}"
    if len(hosts) == 1:
        return command
    listed = ",".join(hosts)
    return f"{command} (with -hosts {listed}; Open MPI: --host {listed})"


def _program() -> str:
    """Return what runs here as one would type it."""
    if sys.argv and Path(sys.argv[0]).is_file():
        return shlex.join(["python", *sys.argv])
    return "python script.py"


def _ranks(ranks: list[int]) -> str:
    """Return ranks as words; the list alone would be long in a large job."""
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _names(tasks: list[tuple[str, int]]) -> str:
    return ", ".join(f"{job} {index}" for job, index in tasks)
