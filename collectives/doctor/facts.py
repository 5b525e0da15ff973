"""What the doctor looks at: the facts of one process, plain values that can be sent."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectives._version import __version__
from collectives.doctor.gpus import GpuFacts, gpu_facts
from collectives.doctor.memory import MemoryFacts, memory_facts
from collectives.errors import InvalidArgumentError
from collectives.launcher import LaunchFacts, read_launch
from collectives.options import Options
from collectives.shadowing import hiding
from collectives.topology import MPIFacts, Topology, usable_cores

NET = Path("/sys/class/net")

# Environment variables that matter, most of which should be the same on every rank.
PREFIXES = (
    "RINGFOLD_",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "BLIS_",
    "NUMBA_",
    "MPIR_CVAR_",
    "OMPI_MCA_",
    "OMPI_ALLOW_RUN_AS_ROOT",
    "I_MPI_ADJUST",
    "I_MPI_FABRICS",
    "I_MPI_SHM",
    "UCX_",
    "FI_",
    "PYTHON",
    "LD_LIBRARY_PATH",
)

# Of those, what changes no result and no speed.
HARMLESS = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}

# Who decides how many threads a BLAS call uses, the strongest first.
THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "OMP_NUM_THREADS",
)


@dataclass(frozen=True)
class CoreFacts:
    """Numbers of the cores that this process may use, and those its launcher may use.

    The launcher is not bound: where its mask is wider than ours, it was the launcher
    who narrowed ours; a batch system or a container narrows both.
    """

    usable: tuple[int, ...]
    offered: tuple[int, ...]
    quota: float | None = None  # cores' worth of time that the container allows


@dataclass(frozen=True)
class ThreadFacts:
    """How many threads one BLAS call of this process uses, and who decided that."""

    count: int
    source: str


@dataclass(frozen=True)
class NetFacts:
    """What a host says of its network."""

    interfaces: tuple[str, ...] = ()
    """Those that are up, without the loopback."""
    address: str = ""
    """What the host's own name stands for here; empty where it stands for nothing."""


@dataclass(frozen=True)
class ProcessFacts:
    """Everything about one rank.

    `bad_option` is what is wrong with its RINGFOLD_* variables, and `problem` why it
    could not join a world; both are empty where all is well.
    """

    host: str
    host_index: int
    pid: int
    is_root: bool
    versions: dict[str, str]
    launch: LaunchFacts
    started_by: str
    mpirun_on_path: str
    mpirun_here: str
    mpi: MPIFacts | None
    cores: CoreFacts
    threads: ThreadFacts
    memory: MemoryFacts
    environment: dict[str, str]
    net: NetFacts = NetFacts()
    gpu: GpuFacts = field(default_factory=GpuFacts)
    topology: Topology | None = None
    bad_option: str = ""
    problem: str = ""
    hiding: str = ""
    """The file that a script in this folder gets in place of the package strategy."""


def process_facts(topology: Topology | None = None, problem: str = "") -> ProcessFacts:
    """Gather the facts of this process, which stands alone without a topology."""
    usable = tuple(sorted(usable_cores()))
    here = topology.host_of[topology.rank] if topology else 0
    return ProcessFacts(
        host=topology.hosts[here] if topology else socket.gethostname(),
        host_index=here,
        pid=os.getpid(),
        is_root=os.geteuid() == 0,
        versions=versions(),
        launch=read_launch(),
        started_by=_started_by(),
        mpirun_on_path=shutil.which("mpirun") or "",
        mpirun_here=_existing(Path(sys.prefix, "bin", "mpirun")),
        mpi=topology.mpi if topology else None,
        cores=CoreFacts(usable, _cores_of(os.getppid()) or usable, _quota()),
        threads=_threads(os.environ, len(usable)),
        # Once a host is enough: it means reading what every process has mapped.
        memory=memory_facts(look_for_leftovers=not (topology and topology.local_rank)),
        environment=_environment(os.environ),
        net=net_facts(),
        gpu=gpu_facts(),
        topology=topology,
        bad_option=_bad_option(),
        problem=problem,
        hiding=str(hiding(Path.cwd()) or ""),
    )


def net_facts() -> NetFacts:
    """Return what this host says, without sending anything."""
    names = []
    for path in sorted(NET.glob("*")):
        try:
            up = (path / "operstate").read_text().strip() in ("up", "unknown")
        except OSError:
            continue
        if up and path.name != "lo":
            names.append(path.name)
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        address = ""
    return NetFacts(tuple(names), address)


def versions() -> dict[str, str]:
    """Return versions by name; optional packages are looked up, never imported."""
    found = {"Ringfold": __version__, "Python": platform.python_version()}
    for name, module in (("NumPy", "numpy"), ("mpi4py", "mpi4py")):
        try:
            found[name] = importlib.metadata.version(module)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    # CuPy's distribution is named after the CUDA release, so only the module is sure.
    has_cupy = importlib.util.find_spec("cupy") is not None
    found["CuPy"] = "installed" if has_cupy else "not installed"
    return found


def _started_by() -> str:
    """Return the parent's program, which under mpirun is a daemon of the launcher."""
    try:
        return os.readlink(f"/proc/{os.getppid()}/exe")
    except OSError:  # another user's process (sudo), or no /proc
        return ""


def _existing(path: Path) -> str:
    return str(path) if path.exists() else ""


def _cores_of(pid: int) -> tuple[int, ...]:
    """Return the cores that another process may use, () where that is unknown."""
    try:
        return tuple(sorted(os.sched_getaffinity(pid)))
    except (AttributeError, OSError):  # not on this system, or gone, or not ours
        return ()


def _quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return how many cores' worth of time this container may use; None is all."""
    try:  # cgroup v2: "max 100000" or "150000 100000", in microseconds
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    return int(quota) / int(period) if quota.isdigit() else None


def _threads(environ: Mapping[str, str], cores: int) -> ThreadFacts:
    """Ask the loaded BLAS if threadpoolctl is there, and else the variables."""
    counts = [pool["num_threads"] for pool in _thread_pools()]
    deciding = [name for name in THREAD_VARIABLES if environ.get(name, "").isdigit()]
    if counts:
        count = max(counts)
    elif deciding:
        count = int(environ[deciding[0]])
    else:
        count = cores
    source = f"{deciding[0]}={environ[deciding[0]]}" if deciding else "the default"
    return ThreadFacts(count, source)


def _thread_pools() -> Iterable[Mapping[str, Any]]:
    if importlib.util.find_spec("threadpoolctl") is None:
        return ()
    import numpy  # noqa: F401  -- loads the BLAS that is asked about
    import threadpoolctl

    pools: list[dict[str, Any]] = threadpoolctl.threadpool_info()
    return pools


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    own = _own_folders(environ)
    told = {**environ, "LD_LIBRARY_PATH": own}
    return {
        name: told[name]
        for name in sorted(environ)
        if name.startswith(PREFIXES)
        and name not in HARMLESS
        and (own or name != "LD_LIBRARY_PATH")
    }


def _own_folders(environ: Mapping[str, str]) -> str:
    """Return where libraries are looked for, but for the launcher's own folder.

    Open MPI's puts that in front, on hosts other than its own, and more than once.
    """
    launchers = {
        os.path.join(environ[name], "lib")
        for name in ("PRTE_PREFIX", "PMIX_PREFIX", "OPAL_PREFIX")
        if name in environ
    }
    folders = dict.fromkeys(environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    return os.pathsep.join(f for f in folders if f and f not in launchers)


def _bad_option() -> str:
    try:
        Options.from_environment()
    except InvalidArgumentError as error:
        return str(error)
    return ""
