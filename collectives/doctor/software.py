"""Whether launcher, MPI, versions and variables fit together, on all ranks."""

from collections.abc import Iterable, Iterator

from collectives.doctor import advice
from collectives.doctor.findings import Check, Finding, Job, grouped, on_ranks, plural
from collectives.launchers import MPI_OF
from collectives.shadowing import REMEDY


def launch(job: Job) -> Iterator[Finding]:
    """Compare what the launcher says with what MPI says."""
    first = job.processes[0]
    said = first.launch
    size = len(job.processes)
    if first.problem:
        yield Finding("error", "launch", first.problem)
    elif said.launcher is None and size == 1:
        yield Finding(
            "note",
            "launch",
            "started without a launcher: one process, a world of its own",
            f"to look at a whole job: {advice.mpirun(first)} -n 2 ringfold doctor",
        )
    elif said.size is not None and said.size != size:
        yield Finding(
            "warning",
            "launch",
            f"the launcher ({said.launcher}) says {said.size}, MPI says {size}",
            "start the job from a shell, not from inside another job",
        )
    else:
        yield Finding("ok", "launch", f"launcher and MPI agree: {plural(size, 'rank')}")
    own = MPI_OF.get(said.launcher or "", job.vendor)
    if not first.problem and own != job.vendor:
        yield Finding(
            "note",
            "launch",
            f"{said.launcher} started a program of {job.vendor}: both speak the same "
            "protocol, but flags and binding are the launcher's",
            f"use {advice.mpirun(first)}",
        )


def program(job: Job) -> Iterator[Finding]:
    """Look whether `mpirun` on PATH is the one of this environment."""
    first = job.processes[0]
    here, found = first.mpirun_here, first.mpirun_on_path
    if first.launch.launcher is None and here and found != here:
        what = f"is {found}, not this environment's" if found else "is missing"
        yield Finding(
            "warning", "launch", f"mpirun on PATH {what}", f"use {advice.mpirun(first)}"
        )


def thread_level(job: Job) -> Iterator[Finding]:
    """Look whether several threads may call MPI."""
    levels = grouped(p.mpi.thread_level for p in job.processes if p.mpi)
    if levels and set(levels) != {"multiple"}:
        yield Finding(
            "warning",
            "threads",
            f"MPI was started with thread level {' and '.join(levels)}",
            "import collectives before mpi4py.MPI, or set mpi4py.rc.thread_level to "
            "'multiple', and call collectives from one thread until then",
        )


# What the ranks may not differ in; anything else that differs is a warning.
SAME_VERSIONS = ("Ringfold", "NumPy", "MPI")


def versions(job: Job) -> Iterator[Finding]:
    """Compare versions over the ranks."""
    tables = [
        {**process.versions, "MPI": process.mpi.version if process.mpi else "none"}
        for process in job.processes
    ]
    differing = [
        name for name in tables[0] if len({table.get(name) for table in tables}) > 1
    ]
    for name in differing:
        yield Finding(
            "error" if name in SAME_VERSIONS else "warning",
            "versions",
            f"{name} differs: {_listed(table.get(name) for table in tables)}",
            "use one environment on a shared disk, or install the same on all hosts",
        )
    if not differing and len(tables) > 1:
        yield Finding("ok", "versions", "the same on all ranks")


def environment(job: Job) -> Iterator[Finding]:
    """Look for variables that are wrong, or should be the same on all ranks."""
    for text, ranks in grouped(p.bad_option for p in job.processes).items():
        if text:
            where = f" (on {on_ranks(ranks)})" if len(job.processes) > 1 else ""
            yield Finding("error", "variables", f"{text}{where}")
    tables = [process.environment for process in job.processes]
    differing = [
        name
        for name in sorted(set[str]().union(*tables))
        if name not in advice.READ_BY_MPIRUN
        and len({table.get(name) for table in tables}) > 1
    ]
    for name in differing:
        values = _listed(table.get(name) for table in tables)
        yield Finding(
            "error" if name.startswith("RINGFOLD_") else "warning",
            "variables",
            f"{name} differs: {values}",
            advice.export(job.vendor, name),
        )
    if not differing and len(tables) > 1:
        yield Finding("ok", "variables", "those that matter are the same on all ranks")


def _listed(values: Iterable[str | None]) -> str:
    """Write every value with its ranks, None as unset."""
    return "; ".join(
        f"{'unset' if value is None else value} on {on_ranks(ranks)}"
        for value, ranks in grouped(values).items()
    )


def imports(job: Job) -> Iterator[Finding]:
    """Look for a module that has the name of one of our packages."""
    for path, ranks in grouped(process.hiding for process in job.processes).items():
        if path:
            where = f" (on {on_ranks(ranks)})" if len(job.processes) > 1 else ""
            yield Finding(
                "warning",
                "imports",
                f"import strategy finds {path}{where}, not Ringfold's package",
                REMEDY,
            )


def peculiarities(job: Job) -> Iterator[Finding]:
    """Say what is peculiar about this MPI, where it matters here."""
    first = job.processes[0]
    for applies, what, fix in advice.PECULIARITIES.get(job.vendor, ()):
        if applies(first):
            yield Finding("note", job.vendor, what, fix(first))


def trial(job: Job) -> Iterator[Finding]:
    """Report how the trial all-reduce went."""
    if job.trial:
        yield Finding("error", "trial", job.trial)
    elif not job.processes[0].problem:
        yield Finding("ok", "trial", "a trial all_reduce gave the right sums")


CHECKS: tuple[Check, ...] = (
    launch,
    program,
    versions,
    environment,
    thread_level,
    imports,
    peculiarities,
    trial,
)
