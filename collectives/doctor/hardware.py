"""Whether the ranks of every host have the cores and the memory that they need."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from collectives.doctor import advice
from collectives.doctor.facts import ProcessFacts
from collectives.doctor.findings import Check, Finding, Job, plural, ranges
from collectives.doctor.memory import OWNERS

MIB = 1 << 20
MOST_NAMES = 3  # hosts or files that are written out before "and 37 more"

HostCheck = Callable[[list[ProcessFacts], str], Iterator[Finding]]
"""Answers a question about one host, from its ranks' facts and the MPI's name."""


def each_host(check: HostCheck) -> Check:
    """Return the check of all hosts; those with the same answer share a finding."""

    def check_hosts(job: Job) -> Iterator[Finding]:
        hosts: dict[Finding, list[str]] = {}
        for host, ranks in job.hosts().items():
            for finding in check([job.processes[rank] for rank in ranks], job.vendor):
                hosts.setdefault(finding, []).append(host)
        for finding, names in hosts.items():
            yield replace(finding, what=f"{_shortened(names, 'host')}: {finding.what}")

    return check_hosts


@each_host
def cores(processes: list[ProcessFacts], vendor: str) -> Iterator[Finding]:
    """Compare the ranks of a host with the cores that they may use."""
    masks = [process.cores.usable for process in processes]
    used = set().union(*masks)
    offered = used.union(*(process.cores.offered for process in processes))
    quota = processes[0].cores.quota
    crowded = [mask for mask in masks if masks.count(mask) > len(mask)]
    ranks = plural(len(processes), "rank")
    on_cores = f"{ranks} on {plural(len(used), 'core')}"
    if len(processes) > len(offered):
        yield Finding(
            "warning",
            "cores",
            f"{ranks} share {plural(len(offered), 'core')} and take turns, which is "
            "fine for tests and useless for measurements",
            f"measure with at most {plural(len(offered), 'rank')} a host",
        )
    elif quota is not None and len(processes) > quota:
        yield Finding(
            "warning",
            "cores",
            f"the container may use {quota:g} cores' worth of time, too little for "
            f"{ranks}",
            "raise its limit (docker run --cpus), or start fewer ranks",
        )
    elif crowded:
        yield Finding(
            "warning",
            "cores",
            f"{plural(masks.count(crowded[0]), 'rank')} are bound to "
            f"{'core' if len(crowded[0]) == 1 else 'cores'} {ranges(crowded[0])}, "
            f"although {len(offered)} cores are there",
            advice.unbind(vendor),
        )
    elif len(used) * 2 <= len(offered):
        yield Finding(
            "note",
            "cores",
            f"{ranks} bound to {len(used)} of {len(offered)} cores; threads (BLAS, "
            "numba, data loaders) cannot use the others",
            advice.unbind(vendor),
        )
    elif len(processes) == 1:
        yield Finding("ok", "cores", on_cores)
    else:
        is_bound = any(set(mask) != offered for mask in masks)
        yield Finding("ok", "cores", f"{on_cores}, {'' if is_bound else 'not '}bound")


@each_host
def blas(processes: list[ProcessFacts], vendor: str) -> Iterator[Finding]:
    """Compare the BLAS threads of all ranks of a host with its cores."""
    threads = sum(process.threads.count for process in processes)
    usable = set[int]().union(*(process.cores.usable for process in processes))
    room = min(len(usable), processes[0].cores.quota or len(usable))
    most = max((process.threads for process in processes), key=lambda own: own.count)
    each = f"{plural(most.count, 'thread')} a rank ({most.source})"
    if most.count > 1 and threads > room:
        # The variable that is set already is the one to change: it wins.
        variable = most.source.partition("=")[0] if "=" in most.source else ""
        yield Finding(
            "warning",
            "BLAS",
            f"{plural(len(processes), 'rank')}, up to {each}: {threads} threads on "
            f"{room:g} cores",
            f"export {variable or 'OMP_NUM_THREADS'}="
            f"{max(1, int(room) // len(processes))}",
        )
    else:
        yield Finding("ok", "BLAS", f"at most {each}")


@each_host
def memory(processes: list[ProcessFacts], vendor: str) -> Iterator[Finding]:
    """Look whether a host has room for what is shared."""
    seen = processes[0].memory
    free = seen.shm_free // MIB
    needed = advice.SHM_PER_RANK.get(vendor, 0) * len(processes) // MIB
    if seen.arena != "memfd":
        yield Finding(
            "warning",
            "memory",
            f"no anonymous shared memory ({seen.arena})",
            "Ringfold uses /dev/shm or messages instead, which is slower; allow "
            "memfd_create and access to /proc/PID/fd in this container",
        )
    if free < needed:
        yield Finding(
            "warning",
            "memory",
            f"{free} MiB of /dev/shm free; {vendor} takes about {needed} MiB for "
            f"{plural(len(processes), 'rank')}, and a job that finds too little dies "
            "of a bus error",
            advice.MORE_SHM,
        )
    if seen.arena == "memfd" and free >= needed:
        # Rounded, so that hosts with about the same share a line.
        text = f"{free // 1024} GiB" if free >= 2048 else f"{free} MiB"
        yield Finding("ok", "memory", f"{text} of /dev/shm free, arena by {seen.arena}")


@each_host
def leftovers(processes: list[ProcessFacts], vendor: str) -> Iterator[Finding]:
    """List shared memory that jobs left behind on a host."""
    files: dict[str, int] = {}
    for process in processes:
        files |= process.memory.leftovers
    if not files:
        return
    owners = sorted(
        {
            owner
            for beginning, owner in OWNERS.items()
            if any(name.startswith(beginning) for name in files)
        }
    )
    yield Finding(
        "note",
        "memory",
        f"{plural(len(files), 'file')} of {' and '.join(owners)} in /dev/shm that no "
        f"running process uses ({sum(files.values()) / MIB:,.1f} MiB)",
        f"rm {_shortened([f'/dev/shm/{name}' for name in files], 'file')}"
        + (", all listed by --json" if len(files) > MOST_NAMES else ""),
    )


def _shortened(names: list[str], noun: str) -> str:
    text = " ".join(names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{text} (and {plural(more, f'more {noun}')})" if more > 0 else text


CHECKS: tuple[Check, ...] = (cores, blas, memory, leftovers)
