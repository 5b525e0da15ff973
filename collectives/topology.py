"""Where the ranks are: hosts, places on them, cores, and the MPI that carries them."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collectives.gpu.visible import devices, may_use_gpu

VENDORS = {
    "Open MPI": "Open MPI",
    "Intel(R) MPI": "Intel MPI",
    "MPICH": "MPICH",
}
THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")
SYSTEM = Path("/sys/devices/system")


@dataclass(frozen=True)
class MPIFacts:
    """The MPI library underneath."""

    vendor: str
    version: str
    library: str
    """The first line of what the library says of itself."""
    thread_level: str
    cuda_aware: str = "unknown"
    """Whether it may be given pointers to the memory of a GPU; `unknown` until it has
    been proved, whatever the library says of itself."""


@dataclass(frozen=True)
class Topology:
    """Where the ranks of a group are, as one of them sees it."""

    rank: int
    hosts: tuple[str, ...]
    """A name for each host; found by shared memory, never by parsing names."""
    host_of: tuple[int, ...]
    """The index in `hosts` of every rank."""
    cores: int
    """Cores of this host that its ranks may run on, taken together."""
    mpi: MPIFacts | None = None
    devices: tuple[str, ...] = ()
    """UUIDs of the GPUs of this host, or files where the driver hides those."""
    numa_nodes: tuple[int, ...] = ()
    """Parts of this host's memory that are near to the cores of its ranks."""
    caches: tuple[tuple[int, ...], ...] = ()
    """Those cores, by which of them share a last-level cache, as the system says. In a
    virtual machine it may be wrong: `comm.probe()` measures."""
    with_gpu: tuple[bool, ...] = ()
    """Whether each rank may use a GPU: it sees one, and CuPy is installed."""

    def restricted(self, ranks: Sequence[int]) -> Topology:
        """Return the topology of some of the ranks, of which this one is one."""
        used = sorted({self.host_of[rank] for rank in ranks})
        return replace(
            self,
            rank=list(ranks).index(self.rank),
            hosts=tuple(self.hosts[host] for host in used),
            host_of=tuple(used.index(self.host_of[rank]) for rank in ranks),
            with_gpu=tuple(self.with_gpu[rank] for rank in ranks if self.with_gpu),
        )

    @property
    def shape(self) -> str:
        """How many ranks are where: `1 host x 4 ranks`, `3 hosts, 2+1+2 ranks`."""
        counts = [self.host_of.count(host) for host in range(len(self.hosts))]
        placed = "" if list(self.host_of) == sorted(self.host_of) else ", not in order"
        hosts = f"{len(counts)} host{'s' * (len(counts) > 1)}"
        if len(set(counts)) == 1:
            return f"{hosts} x {counts[0]} rank{'s' * (counts[0] > 1)}{placed}"
        return f"{hosts}, {'+'.join(map(str, counts))} ranks{placed}"

    @property
    def parts(self) -> str:
        """What this host is made of, as far as it is known; may be empty."""
        nodes, caches = self.numa_nodes, len(self.caches)
        known = [f"NUMA node{'s' * (len(nodes) > 1)} {' '.join(map(str, nodes))}"]
        known = known if nodes else []
        if caches:
            known.append(f"{caches} last-level cache{'s' * (caches > 1)}")
        return ", ".join([*known, *(f"GPU {uuid}" for uuid in self.devices)])

    @property
    def most_per_host(self) -> int:
        """The number of ranks on the host that has the most."""
        return max(Counter(self.host_of).values())

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """The ranks on this host, this one included."""
        here = self.host_of[self.rank]
        return tuple(rank for rank, host in enumerate(self.host_of) if host == here)

    @property
    def local_rank(self) -> int:
        """This rank's place among those of its host."""
        return self.local_ranks.index(self.rank)

    @property
    def local_size(self) -> int:
        """The number of ranks on this host."""
        return len(self.local_ranks)


def usable_cores() -> frozenset[int]:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def processor() -> str:
    """Return the kind of processor and how many cores may be used, without a name."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return f"{model[1] if model else platform.machine()}, {len(usable_cores())} cores"


def numa_nodes(cores: Iterable[int], system: Path = SYSTEM) -> tuple[int, ...]:
    """Return the NUMA nodes that some cores belong to; none where that is unknown."""
    wanted = set(cores)
    return tuple(
        sorted(
            int(path.parent.name.removeprefix("node"))
            for path in system.glob("node/node[0-9]*/cpulist")
            if wanted & _listed(path)
        )
    )


def last_caches(
    cores: Iterable[int], system: Path = SYSTEM
) -> tuple[tuple[int, ...], ...]:
    """Return some cores by the last-level cache that they share; none if unknown."""
    wanted, found = set(cores), set()
    for core in wanted:
        levels = sorted((system / f"cpu/cpu{core}/cache").glob("index[0-9]*"))
        if levels:
            sharing = _listed(levels[-1] / "shared_cpu_list") & wanted
            found.add(tuple(sorted(sharing)))
    return tuple(sorted(found))


def _listed(path: Path) -> set[int]:
    """Read the system's list of cores, such as `0-3,8`; empty where it has none."""
    try:
        parts = path.read_text().strip().split(",")
        ends = [[int(end) for end in part.split("-")] for part in parts if part]
    except (OSError, ValueError):
        return set()
    return {core for end in ends for core in range(end[0], end[-1] + 1)}


def single_host(rank: int, size: int) -> Topology:
    """Return the topology of ranks that are threads of this process."""
    name = os.uname().nodename if hasattr(os, "uname") else "localhost"
    cores = usable_cores()
    return Topology(
        rank,
        (name,),
        (0,) * size,
        len(cores),
        devices=devices(),
        with_gpu=(may_use_gpu(),) * size,
        numa_nodes=numa_nodes(cores),
        caches=last_caches(cores),
    )


def discover(comm: Any, local: Any) -> Topology:
    """Gather the topology; collective and blocking, for start-up only.

    Args:
        comm: mpi4py communicator of all ranks.
        local: mpi4py communicator of those that share memory with this rank.
    """
    from mpi4py import MPI

    rank = comm.Get_rank()
    leader, name = local.bcast((rank, MPI.Get_processor_name()))
    cores = frozenset[int]().union(*local.allgather(usable_cores()))
    everyone: list[tuple[int, str, bool]] = comm.allgather(
        (leader, name, may_use_gpu())
    )
    leaders = sorted({(leader, name) for leader, name, _ in everyone})
    index = {leader: place for place, (leader, _) in enumerate(leaders)}
    return Topology(
        rank=rank,
        hosts=tuple(name for _, name in leaders),
        host_of=tuple(index[leader] for leader, _, _ in everyone),
        cores=len(cores),
        mpi=mpi_facts(),
        devices=devices(),
        with_gpu=tuple(with_gpu for _, _, with_gpu in everyone),
        numa_nodes=numa_nodes(cores),
        caches=last_caches(cores),
    )


def mpi_facts() -> MPIFacts:
    """Ask the initialized MPI library who it is; needs mpi4py."""
    from mpi4py import MPI

    vendor, version = _vendor()
    levels = (
        MPI.THREAD_SINGLE,
        MPI.THREAD_FUNNELED,
        MPI.THREAD_SERIALIZED,
        MPI.THREAD_MULTIPLE,
    )
    return MPIFacts(
        vendor=vendor,
        version=version,
        library=MPI.Get_library_version().strip("\x00\n ").splitlines()[0],
        thread_level=THREAD_LEVELS[levels.index(MPI.Query_thread())],
    )


def mpi_name() -> str:
    """Return vendor and version, such as `MPICH 5.0.2`, also before `MPI_Init`."""
    return " ".join(_vendor())


def _vendor() -> tuple[str, str]:
    from mpi4py import MPI

    text: str = MPI.Get_library_version()
    name, version = MPI.get_vendor()
    vendor = next((known for key, known in VENDORS.items() if key in text), name)
    return vendor, ".".join(map(str, version))
