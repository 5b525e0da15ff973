"""Tables of what was measured: which algorithm for which sizes, and what moves cost.

A file holds several *tables*, each for one kind of place: an MPI, one host or several,
how many ranks, whether they share a cache. `ringfold tune` writes them; the files in
this folder are what it wrote on the machine that docs/tuning.md names. Rank 0 reads,
the others are told (startup.py): whatever happens, all ranks have the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from math import log2
from pathlib import Path
from typing import Any

from collectives import ranges
from collectives.costs import Costs
from collectives.errors import InvalidArgumentError
from collectives.moves import Place
from collectives.ranges import Ranges
from collectives.topology import Topology

FOLDER = Path(__file__).parent
DEFAULT = FOLDER / "default.json"
SHIPPED = {"MPICH": "mpich", "Open MPI": "open_mpi", "Intel MPI": "intel_mpi"}
FORMAT = 1
FURTHEST = 1.0
"""Across hosts a table counts for twice as many hosts and ranks, and for half."""


@dataclass(frozen=True)
class Table:
    """What was found in one kind of place."""

    mpi: str
    """Its vendor; empty for any."""
    hosts: int
    ranks: int
    """0 for any number."""
    caches: str = ""
    """`one` or `split`: whether ranks of a host shared a cache; empty if unknown."""
    rules: Mapping[str, Ranges] = field(default_factory=dict)
    costs: Costs = field(default_factory=lambda: Costs({}))
    made: Mapping[str, str] = field(default_factory=dict)
    """Where it comes from: date, machine, command, versions."""

    @property
    def name(self) -> str:
        """What it is for, in words."""
        where = "one host" if self.hosts == 1 else f"{self.hosts} hosts"
        ranks = f", {self.ranks} ranks" if self.ranks else ""
        caches = f", {self.caches} cache{'s' * (self.caches == 'split')}"
        return f"{self.mpi or 'any MPI'}, {where}{ranks}{caches if self.caches else ''}"

    def distance(self, mpi: str, place: Place, caches: str) -> float | None:
        """Return how unlike this one a place is; None if it says nothing about it."""
        several = self.hosts > 1
        if self.mpi not in ("", mpi) or several != (place.hosts > 1):
            return None
        if not self.ranks:
            return 1000.0
        fewer = self.ranks / place.ranks, self.hosts / place.hosts
        apart = sum(abs(log2(ratio)) for ratio in fewer)
        if several and apart > 2 * FURTHEST:
            return None
        return apart + (0.1 if self.caches != caches else 0) + (0 if self.mpi else 100)


def nearest(
    tables: Sequence[Table], mpi: str, place: Place, caches: str
) -> tuple[Table, ...]:
    """Return the tables that say something about a place, the most alike first."""
    known = [
        (apart, number, table)
        for number, table in enumerate([*tables, *default()])
        if (apart := table.distance(mpi, place, caches)) is not None
    ]
    return tuple(table for _, _, table in sorted(known, key=lambda one: one[:2]))


class Tuning:
    """What is known about the place of one group."""

    def __init__(self, tables: Sequence[Table], topology: Topology) -> None:
        """Take from the tables, and the shipped ones, what is about such a place."""
        mpi = topology.mpi.vendor if topology.mpi is not None else ""
        self.place = Place(len(topology.host_of), topology.most_per_host)
        caches = {0: "", 1: "one"}.get(len(topology.caches), "split")
        if self.place.hosts > 1:
            caches = ""  # each rank knows of its own host only, and all must agree
        self.tables = nearest(tables, mpi, self.place, caches)
        costs = Costs({})
        # What happens inside of a host costs the same wherever other hosts are.
        near = Place(self.place.per_host, self.place.per_host)
        for table in (*self.tables, *nearest(tables, mpi, near, caches)):
            same = (table.ranks, table.hosts) == (self.place.ranks, self.place.hosts)
            costs = costs.over(table.costs if same else table.costs.without_whole())
        self.costs = costs


@cache
def default() -> tuple[Table, ...]:
    """Return the tables that hold where nothing was measured."""
    return read(DEFAULT.read_text(encoding="utf-8"))


def shipped(mpi: str) -> str:
    """Return the text of the tables for an MPI that come with Ringfold, or nothing."""
    path = FOLDER / f"{SHIPPED.get(mpi, 'none')}.json"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read(text: str, source: str = "a table") -> tuple[Table, ...]:
    """Read a file's text.

    Raises:
        InvalidArgumentError: it is no table, or one of another format.
    """
    try:
        whole = json.loads(text)
        if whole["format"] != FORMAT:
            raise InvalidArgumentError(
                f"{source} has format {whole['format']}; wanted {FORMAT}: tune again"
            )
        return tuple(_table(entry) for entry in whole["tables"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"{source} is not a table of ringfold tune: {type(error).__name__}: {error}"
        ) from None


def _table(entry: dict[str, Any]) -> Table:
    rules = {name: ranges.parse(text) for name, text in entry["rules"].items()}
    curves = {
        kind: tuple((float(nbytes), float(us)) for nbytes, us in points)
        for kind, points in entry["curves_us"].items()
    }
    kept = {name: entry[name] for name in ("mpi", "hosts", "ranks", "caches", "made")}
    return Table(**kept, rules=rules, costs=Costs(curves))


def written(tables: Sequence[Table]) -> str:
    """Return the text of a file, one line a curve."""
    whole = {"format": FORMAT, "tables": [_entry(table) for table in tables]}
    return _one_line_a_list(json.dumps(whole, indent=1)) + "\n"


def _entry(table: Table) -> dict[str, Any]:
    entry = asdict(table)
    del entry["costs"]
    entry["rules"] = {name: ranges.written(its) for name, its in table.rules.items()}
    entry["curves_us"] = {
        kind: [[round(nbytes), float(f"{us:.3g}")] for nbytes, us in curve]
        for kind, curve in table.costs.curves.items()
    }
    return entry


def _one_line_a_list(text: str) -> str:
    """Draw together the lists of numbers, which JSON writes one number a line."""
    lines: list[str] = []
    depth = 0
    for line in text.split("\n"):
        bare = line.strip()
        inside = depth > 0
        if bare.endswith("[") and '"tables"' not in bare:
            depth += 1
        if bare.startswith("]") and depth:
            depth -= 1
        if inside:
            space = " " if lines[-1].endswith(",") else ""
            lines[-1] += space + bare
        else:
            lines.append(line)
    return "\n".join(lines)


def merged(old: Sequence[Table], new: Table) -> list[Table]:
    """Return the tables of a file after one for the same kind of place is replaced."""

    def key(table: Table) -> tuple[str, int, int, str]:
        return table.mpi, table.hosts, table.ranks, table.caches

    return sorted([*(t for t in old if key(t) != key(new)), new], key=key)
