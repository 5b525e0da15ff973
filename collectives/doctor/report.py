"""The doctor's findings for a reader: a header of facts, one line a finding."""

import textwrap
from collections.abc import Iterator, Sequence

from collectives.doctor.findings import LEVELS, Finding, Job, on_ranks, plural, ranges
from collectives.doctor.gpus import lines
from collectives.doctor.network import matrix

WIDTH = 88
MOST_HOSTS = 16  # lines of the host map


def render(job: Job, findings: Sequence[Finding]) -> str:
    """Return the whole report."""
    return "\n".join((*_header(job), "", *_body(findings), "", _summary(findings)))


def _header(job: Job) -> Iterator[str]:
    first = job.processes[0]
    yield "   ".join(f"{name} {text}" for name, text in first.versions.items())
    if first.mpi:
        mpi = first.mpi
        yield (
            f"MPI       {mpi.vendor} {mpi.version}, thread level {mpi.thread_level}, "
            f"CUDA-aware: {job.gpus.cuda_aware if job.gpus else mpi.cuda_aware}"
        )
    elif first.problem:
        yield "MPI       not started"
    else:
        yield "MPI       none; a world of one process works without"
    if first.launch.launcher:
        where = f" ({first.started_by})" if first.started_by else ""
        ranks = plural(first.launch.at_least, "rank")
        yield f"launcher  {first.launch.launcher}{where}, {ranks}"
    hosts = job.hosts()
    for index, (host, ranks_here) in enumerate(hosts.items()):
        if index == MOST_HOSTS:
            yield f"          ... and {plural(len(hosts) - index, 'more host')}"
            break
        processes = [job.processes[rank] for rank in ranks_here]
        cores = set().union(*(process.cores.usable for process in processes))
        label = "host" if index == 0 else ""
        line = f"{host}: {on_ranks(ranks_here)} on cores {ranges(cores)}"
        topology = processes[0].topology
        parts = f", {topology.parts}" if topology and topology.parts else ""
        yield f"{label:<10}{line}{parts}"
    summaries = dict.fromkeys(process.gpu.line for process in job.processes)
    for index, line in enumerate(summaries):
        yield f"{'GPU' if index == 0 else '':<10}{line}"
    yield from dict.fromkeys(line for p in job.processes for line in lines(p.gpu))
    yield from matrix(job)


def _body(findings: Sequence[Finding]) -> Iterator[str]:
    level_width = max(len(level) for level in LEVELS)
    check_width = max(len(finding.check) for finding in findings)
    for finding in findings:
        start = f"{finding.level:<{level_width}}  {finding.check:<{check_width}}  "
        yield _wrapped(finding.what, start)
        if finding.fix:
            yield _wrapped(finding.fix, " " * len(start) + "-> ")


def _wrapped(text: str, start: str) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,  # paths and commands are there to be copied
        break_on_hyphens=False,
    )


def _summary(findings: Sequence[Finding]) -> str:
    counts = {
        level: sum(finding.level == level for finding in findings) for level in LEVELS
    }
    bad = [
        plural(counts[level], level)
        for level in ("error", "warning", "note")
        if counts[level]
    ]
    return ", ".join(bad) if bad else "no complaints"
