"""`ringfold doctor`: what is wrong with this machine, job or environment.

Every rank gathers its facts (facts.py), all ranks see all facts and draw the same
conclusions (software.py, hardware.py, gpu_checks.py), rank 0 prints them (report.py),
and all exit with the same status: 1 if there is an error. What lies between hosts is
measured (network.py).
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from collectives.bench.usage import Parser, Usage, refuse
from collectives.communicator import Communicator
from collectives.doctor import gpu_checks, gpu_trial, hardware, network, software
from collectives.doctor.facts import process_facts
from collectives.doctor.findings import Check, Finding, Job
from collectives.doctor.report import render
from collectives.errors import CollectiveError
from collectives.options import Options
from collectives.startup import world

__all__ = ["main"]

PATIENCE_S = 3.0


def main(arguments: Sequence[str]) -> int:
    """Run the doctor; the returned exit status is the same on every rank."""
    parser = Parser(
        prog="ringfold doctor",
        description="Look at this environment, or under mpirun at the whole job, "
        "and say what is wrong. The exit status is 1 if there is an error.",
    )
    parser.add_argument(
        "--json", action="store_true", help="print facts, findings and status as JSON"
    )
    try:
        options = parser.parse_args(arguments)
    except Usage as usage:
        return refuse(usage)
    job, rank = survey()
    findings = examine(job)
    status = int(any(finding.level == "error" for finding in findings))
    if rank == 0:
        if options.json:
            facts = [asdict(process) for process in job.processes]
            report = {
                "facts": facts,
                "links": [asdict(link) for link in job.links],
                "gpus": None if job.gpus is None else asdict(job.gpus),
                "findings": [asdict(finding) for finding in findings],
                "status": status,
            }
            print(json.dumps(report, indent=1), flush=True)
        else:
            print(render(job, findings), flush=True)
    return status


def examine(job: Job) -> list[Finding]:
    """Answer every question about the job, or those that one process can answer."""
    checks: tuple[Check, ...] = (
        *software.CHECKS,
        *hardware.CHECKS,
        *gpu_checks.CHECKS,
        *network.CHECKS,
    )
    if job.processes[0].problem:
        checks = (software.launch, hardware.memory)
    return [finding for check in checks for finding in check(job)]


def survey() -> tuple[Job, int]:
    """Return the facts of all ranks and this process's rank.

    Where no world can be made, each process knows of itself only, and its rank is what
    the launcher says, so that still one process alone reports. The others give it time:
    some launchers end the job as soon as one process has left with an error.
    """
    try:
        # Not with the RINGFOLD_* variables: to be told when they are wrong or differ.
        comm = world(Options())
    except CollectiveError as error:
        facts = process_facts(problem=str(error))
        rank = facts.launch.rank or 0
        if rank != 0:
            time.sleep(PATIENCE_S)
        return Job((facts,)), rank
    processes = tuple(comm.all_gather_object(process_facts(comm.topology)))
    trial = _trial(comm)
    several = len(comm.topology.hosts) > 1 and not trial
    links = network.measure(comm) if several else ()
    on_gpus = None if trial else gpu_trial.trial(comm)
    return Job(processes, trial, links, on_gpus), comm.rank


def _trial(comm: Communicator) -> str:
    """Run an all-reduce of known result; return what is wrong, the same everywhere."""
    try:
        total = comm.all_reduce(np.arange(1000.0) * (comm.rank + 1))
    except CollectiveError as error:
        return f"a trial all_reduce failed: {error}"
    expected = np.arange(1000.0) * (comm.size * (comm.size + 1) // 2)
    right = comm.all_gather_object(bool(np.array_equal(total, expected)))
    wrong = [rank for rank, fine in enumerate(right) if not fine]
    return f"a trial all_reduce gave wrong sums on ranks {wrong}" if wrong else ""
