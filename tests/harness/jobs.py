"""Jobs for the doctor to look at, with whatever is wrong with them."""

from dataclasses import replace
from typing import Any

from collectives.doctor.facts import CoreFacts, ProcessFacts, ThreadFacts
from collectives.doctor.findings import Job
from collectives.doctor.memory import MemoryFacts
from collectives.launcher import LaunchFacts
from collectives.topology import MPIFacts

MPICH = MPIFacts("MPICH", "5.0.2", "MPICH Version: 5.0.2", "multiple")
OPEN_MPI = MPIFacts("Open MPI", "5.0.11", "Open MPI v5.0.11", "multiple")
INTEL = MPIFacts("Intel MPI", "2021.18.1", "Intel(R) MPI Library", "multiple")
LAUNCHERS = {"MPICH": "MPICH's mpirun", "Open MPI": "Open MPI's mpirun"}


def job(ranks: int = 2, mpi: MPIFacts | None = MPICH, **changes: Any) -> Job:
    """Return a healthy job on one host with eight cores, after some changes."""
    said = LAUNCHERS.get(mpi.vendor if mpi else "")
    healthy = ProcessFacts(
        host="node",
        host_index=0,
        pid=1,
        is_root=False,
        versions={"Ringfold": "0.1.0", "Python": "3.12.1", "NumPy": "2.0.0"},
        launch=LaunchFacts(said, ranks, 0, ranks) if said else LaunchFacts(),
        started_by="/env/bin/hydra_pmi_proxy",
        mpirun_on_path="/env/bin/mpirun",
        mpirun_here="/env/bin/mpirun",
        mpi=mpi,
        cores=CoreFacts(tuple(range(8)), tuple(range(8))),
        threads=ThreadFacts(1, "OMP_NUM_THREADS=1"),
        memory=MemoryFacts(1 << 30, 1 << 30, "memfd"),
        environment={"OMP_NUM_THREADS": "1"},
    )
    return Job((replace(healthy, **changes),) * ranks)


def change(healthy: Job, rank: int, **changes: Any) -> Job:
    """Return the job with other facts on one rank."""
    processes = list(healthy.processes)
    processes[rank] = replace(processes[rank], **changes)
    return replace(healthy, processes=tuple(processes))
