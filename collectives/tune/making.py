"""A table, from the first measurement to the file."""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import collectives
from collectives import ranges
from collectives.bench.obstacles import draft
from collectives.bench.usage import Usage
from collectives.communicator import Communicator
from collectives.costs import alpha_beta
from collectives.moves import Place
from collectives.tables import Table, merged, read, written
from collectives.topology import processor
from collectives.tune.fitting import fit
from collectives.tune.ruling import rules

FIT_S, MOST_S = 8.0, 13.0  # of fitting, and of all; then prices decide what is left


def run(comm: Communicator, output: str, argv: Sequence[str]) -> None:
    """Measure, decide, and write the table or add it to those in the file. Collective.

    Raises:
        Usage: rank 0 cannot write the file; the same on every rank.
    """
    start, path = time.perf_counter(), Path(output)
    problem = comm.broadcast_object(_unwritable(path) if comm.rank == 0 else None)
    if problem:
        raise Usage(problem)
    found = _measured(comm, start, " ".join(["ringfold tune", *map(shlex.quote, argv)]))
    seconds = time.perf_counter() - start
    if comm.rank == 0:
        old = read(path.read_text(), str(path)) if path.exists() else ()
        draft(path).write_text(written(merged(old, found)), encoding="utf-8")
        draft(path).replace(path)
        print(_summary(found, seconds, path), flush=True)


def _measured(comm: Communicator, start: float, command: str) -> Table:
    mode, topology = comm.probe(), comm.topology
    mpi = topology.mpi
    caches = "" if mode is None else "one" if mode.shares_cache else "split"
    made = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": processor(),
        "memory": str(mode or "not shared by all ranks"),
        "mpi": f"{mpi.vendor} {mpi.version}" if mpi else "none",
        "ranks": topology.shape,
        "ringfold": collectives.__version__,
        "python": platform.python_version(),
        "command": command,
    }
    place = Place(comm.size, topology.most_per_host)
    vendor = mpi.vendor if mpi else ""
    costs = fit(comm, FIT_S)
    table = Table(vendor, place.hosts, comm.size, caches, {}, costs, made)
    group, before = comm._group, comm._group.tables
    group.know((table,))
    try:
        left = MOST_S - (time.perf_counter() - start)
        return replace(table, rules=rules(comm, left))
    finally:
        group.know(before)


def _unwritable(path: Path) -> str | None:
    """Return why the table cannot be written, or not be added to what is there."""
    try:
        if path.exists():
            read(path.read_text(encoding="utf-8"), str(path))
        draft(path).touch()
        draft(path).unlink()
    except (OSError, ValueError) as error:
        return f"cannot write --output {path}: {error}"
    return None


def _summary(found: Table, seconds: float, path: Path) -> str:
    lines = [f"table for {found.name}: {found.made['memory']}", ""]
    lines.append(f"{'kind':<24}{'alpha us':>10}{'GB/s':>8}   at the largest size")
    for kind, curve in found.costs.curves.items():
        alpha, rate = alpha_beta(curve)
        lines.append(f"{kind:<24}{alpha:>10.2f}{rate:>8.2f}")
    lines += ["", *(f"{n:<16}{ranges.written(its)}" for n, its in found.rules.items())]
    lines += ["", f"{seconds:.1f} s; written to {path}: export RINGFOLD_TABLE={path}"]
    return "\n".join(lines)
