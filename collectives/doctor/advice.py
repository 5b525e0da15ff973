"""What to do about it, MPI by MPI: tables."""

import shlex
from collections.abc import Callable, Mapping

from collectives.doctor.facts import ProcessFacts

Applies = Callable[[ProcessFacts], bool]
Fix = Callable[[ProcessFacts], str]

# Bytes of /dev/shm that a rank takes before anybody shares anything (measured: 5.2 MiB
# with MPICH 5.0, below 0.3 MiB with Open MPI 5.0 and Intel MPI 2021).
SHM_PER_RANK = {"MPICH": 5 << 20}

MORE_SHM = (
    "docker run --shm-size=1g; on your own machine: mount -o remount,size=50% /dev/shm"
)

# Variables that matter only where mpirun is started, so that ranks may differ.
READ_BY_MPIRUN = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}

_EXPORT = {
    "Open MPI": "export it and add -x {name} to mpirun",
    "MPICH": "export it and add -genvlist {name} to mpirun",
    "Intel MPI": "export it and add -genvlist {name} to mpirun",
}

_UNBIND = {
    "Open MPI": "add --bind-to none to mpirun",
    "MPICH": "add -bind-to none to mpirun",
    "Intel MPI": "export I_MPI_PIN=off",
}

# Vendor -> (where it applies, what, what to do).
PECULIARITIES: dict[str, tuple[tuple[Applies, str, Fix], ...]] = {
    "Open MPI": (
        (
            lambda process: (
                process.is_root and not process.environment.keys() >= READ_BY_MPIRUN
            ),
            "mpirun refuses to run as root unless two variables say that you mean it",
            lambda process: (
                "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
            ),
        ),
        (
            lambda process: process.launch.launcher is None,
            "mpirun refuses more ranks than cores unless told otherwise",
            lambda process: "add --oversubscribe to mpirun",
        ),
        (
            lambda process: (
                process.launch.launcher is None
                and "OMPI_MCA_osc" not in process.environment
            ),
            "programs that use one-sided MPI may print an error line of osc/ucx",
            lambda process: "export OMPI_MCA_osc=^ucx",
        ),
    ),
    "Intel MPI": (
        (
            lambda process: process.mpirun_here != process.mpirun_on_path,
            "mpirun works only with its own directory on PATH",
            lambda process: f"export PATH={_folder(process)}:$PATH",
        ),
    ),
}


# What tells an MPI which network to take; the first of each is what we advise.
_INTERFACE = {
    "MPICH": ("FI_TCP_IFACE", "UCX_NET_DEVICES", "FI_PROVIDER"),
    "Open MPI": ("OMPI_MCA_btl_tcp_if_include", "UCX_NET_DEVICES"),
    "Intel MPI": ("FI_TCP_IFACE", "UCX_NET_DEVICES", "FI_PROVIDER"),
}
_SET_INTERFACE = {
    "MPICH": "export FI_TCP_IFACE=NAME (with UCX: UCX_NET_DEVICES=NAME), add -genvlist "
    "FI_TCP_IFACE and -iface NAME to mpirun",
    "Open MPI": "add --mca btl_tcp_if_include NAME to mpirun (with UCX: "
    "-x UCX_NET_DEVICES=NAME)",
    "Intel MPI": "export FI_TCP_IFACE=NAME I_MPI_HYDRA_IFACE=NAME",
}


def tells_interface(vendor: str, environment: Mapping[str, str]) -> bool:
    """Tell whether some variable says which network this MPI takes."""
    return any(name in environment for name in _INTERFACE.get(vendor, ()))


def interface(vendor: str) -> str:
    """Say how an MPI is told which network to take."""
    return _SET_INTERFACE.get(vendor, "tell the MPI which interface to take")


def mpirun(process: ProcessFacts) -> str:
    """Return the command that fits this environment, short where PATH finds it."""
    if not process.mpirun_here or process.mpirun_here == process.mpirun_on_path:
        return "mpirun"
    return shlex.quote(process.mpirun_here)


def export(vendor: str, name: str) -> str:
    """Say how a variable reaches all ranks."""
    return _EXPORT.get(vendor, "export it on every host").format(name=name)


def unbind(vendor: str) -> str:
    """Say how ranks may use every core."""
    return _UNBIND.get(vendor, "turn the launcher's binding off")


def _folder(process: ProcessFacts) -> str:
    return shlex.quote(process.mpirun_here.rpartition("/")[0])
