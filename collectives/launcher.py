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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectives.launchers import (
    EVIDENCE,
    LAUNCHERS,
    MARKS,
    SETTINGS,
    Launcher,
    integer,
)


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
        if name.startswith(SETTINGS) or not (name in ranks or name.startswith(MARKS))
    }


def read_launch(environ: Mapping[str, str] = os.environ) -> LaunchFacts:
    """Return what the launcher's environment variables say about this process.

    ``variables`` holds every variable that was looked at and is set, also those of
    other launchers: two launchers inside each other are a finding of its own.
    """
    names = {
        name
        for row in LAUNCHERS
        for name in (row.size, row.rank, row.local_size)
        if name
    }
    variables = {
        name: environ[name] for name in sorted(names.union(EVIDENCE) & set(environ))
    }
    for row in LAUNCHERS:
        size = integer(environ.get(row.size, ""))
        rank = integer(environ.get(row.rank, ""))
        if rank is not None and row.applies(environ):
            local_size = integer(environ.get(row.local_size, ""))
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


def _row_of(facts: LaunchFacts) -> Launcher:
    """Return the launcher's row; PMIx is all that can be meant without a name."""
    rows = (row for row in LAUNCHERS if row.name == facts.launcher)
    return next(rows, LAUNCHERS[-1])


def _ranks(facts: LaunchFacts) -> str:
    count = facts.at_least
    prefix = "" if facts.size is not None else "at least "
    return f"{prefix}{count} rank{'s' if count > 1 else ''}"


def _cause(row: Launcher, library: str) -> str:
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
