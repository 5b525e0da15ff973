"""The network between hosts: latency and rate of each pair, and who is in its way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations
from statistics import median

import numpy as np

from collectives.communicator import Communicator
from collectives.doctor import advice
from collectives.doctor.findings import Check, Finding, Job, Link, plural

MOST_HOSTS = 8  # of more hosts only neighbours are measured: time grows with pairs
PINGS = 20
TRIAL_BYTES, MOST_BYTES = 64 << 10, 8 << 20
PAIR_S = 0.1  # how long the large messages of a pair may take
SLOW = 2.0  # times as slow as the median link


def measure(comm: Communicator) -> tuple[Link, ...]:
    """Measure pairs of hosts, one after the other; the same on all ranks. Collective.

    One rank of each host takes part. 28 pairs are the most, some 0.2 s each.
    """
    host_of, hosts = comm.topology.host_of, len(comm.topology.hosts)
    leaders = [host_of.index(host) for host in range(hosts)]
    found = []
    for pair in pairs(hosts):
        ranks = [leaders[host] for host in pair]
        if comm.rank in ranks:
            link = _ping(comm, ranks[comm.rank == ranks[0]], comm.rank == ranks[0])
            if comm.rank == ranks[0]:
                found.append(Link(*pair, *link))
        comm.barrier()
    everyones = comm.all_gather_object(found)
    return tuple(sorted((link for links in everyones for link in links), key=_ends))


def _ends(link: Link) -> tuple[int, int]:
    return link.one, link.other


def pairs(hosts: int) -> list[tuple[int, int]]:
    """Return which hosts are measured with which: all, or each with the next."""
    if hosts <= MOST_HOSTS:
        return list(combinations(range(hosts), 2))
    return [(host, (host + 1) % hosts) for host in range(hosts)]


def _ping(comm: Communicator, peer: int, first: bool) -> tuple[float, float]:
    """Return latency and rate; there and back, with what `first` says is a turn."""
    small, trial = np.zeros(1), np.zeros(TRIAL_BYTES // 8)
    latency_s = min(_there_and_back(comm, peer, first, small) for _ in range(PINGS))
    guess_s = min(_there_and_back(comm, peer, first, trial) for _ in range(3))
    length = np.array([TRIAL_BYTES * PAIR_S / 2 / guess_s])
    (comm.send if first else comm.recv)(length, peer)
    nbytes = int(min(MOST_BYTES, max(TRIAL_BYTES, length[0])))
    large = np.zeros(nbytes // 8)
    large_s = min(_there_and_back(comm, peer, first, large) for _ in range(3))
    return latency_s * 1e6, large.nbytes / large_s / 1e9


def _there_and_back(
    comm: Communicator, peer: int, first: bool, data: np.ndarray
) -> float:
    """Return half of the seconds that a message there and back takes."""
    start = time.perf_counter()
    for sends in (first, not first):
        (comm.send if sends else comm.recv)(data, peer)
    return (time.perf_counter() - start) / 2


def matrix(job: Job) -> Iterator[str]:
    """Yield the lines of a table, latency and rate of each pair."""
    names = list(job.hosts())
    if not job.links:
        return
    yield "network   microseconds one way, and GB/s (1e9), by host"
    if len(names) > MOST_HOSTS:
        for link in sorted(job.links, key=lambda link: link.gbs)[:MOST_HOSTS]:
            ends = f"{names[link.one]} - {names[link.other]}"
            yield f"          {ends}: {link.latency_us:.1f} us, {link.gbs:.3f} GB/s"
        yield f"          the slowest of {plural(len(job.links), 'pair')} of neighbours"
        return
    width = max(16, *(len(name) + 2 for name in names))
    yield " " * 10 + " " * width + "".join(f"{name:>{width}}" for name in names)
    known = {(link.one, link.other): link for link in job.links}
    for row, name in enumerate(names):
        cells = []
        for column in range(len(names)):
            pair = min(row, column), max(row, column)
            text = _short(known[pair]) if pair in known else "-"
            cells.append(f"{text:>{width}}")
        yield f"{'':10}{name:<{width}}{''.join(cells)}"


def _short(link: Link) -> str:
    return f"{link.latency_us:.1f} us {link.gbs:.3f}"


def links(job: Job) -> Iterator[Finding]:
    """Look for links that are much slower than the others."""
    if not job.links:
        return
    names = list(job.hosts())
    usual_us = median(link.latency_us for link in job.links)
    usual_gbs = median(link.gbs for link in job.links)
    slow = [
        link
        for link in job.links
        if link.gbs * SLOW < usual_gbs or link.latency_us > SLOW * usual_us + 50
    ]
    for link in slow:
        yield Finding(
            "warning",
            "network",
            f"{names[link.one]} - {names[link.other]}: {link.latency_us:.1f} us, "
            f"{link.gbs:.3f} GB/s; the usual link has {usual_us:.1f} us and "
            f"{usual_gbs:.3f} GB/s",
            "look for another interface, a cable or a busy host; every collective "
            "waits for the slowest link",
        )
    if not slow:
        what = f"{usual_us:.1f} us, {usual_gbs:.3f} GB/s between hosts"
        yield Finding("ok", "network", what)


def interfaces(job: Job) -> Iterator[Finding]:
    """Look for hosts where an MPI may take the wrong interface or address."""
    if len(job.hosts()) == 1:
        return
    for host, ranks in job.hosts().items():
        process = job.processes[ranks[0]]
        net, told = process.net, advice.tells_interface(job.vendor, process.environment)
        if len(net.interfaces) > 1 and not told:
            yield Finding(
                "note",
                "network",
                f"{host}: {' '.join(net.interfaces)} are up, and {job.vendor} chooses "
                "by itself; where a job hangs at start or is slow, it took the wrong "
                "one",
                advice.interface(job.vendor),
            )
        if net.address.startswith("127."):
            yield Finding(
                "warning",
                "network",
                f"{host}: its own name stands for {net.address}, which no other host "
                "can reach",
                "give the name the address of the network in /etc/hosts",
            )


CHECKS: tuple[Check, ...] = (links, interfaces)
