"""Print one table of what `scripts/compare_peers.sh` has left in a folder.

`MPI.json` and `MPI-shapes.json` are documents of `ringfold bench`, the others are what
timing.py writes. What could not be measured has no file and gets no column.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

MPIS = ("mpich", "openmpi", "impi")
PEERS = ("gloo", "tensorflow")
OURS = "{:>10}"
THEIRS = "{:>18}"

Times = dict[str, float]
"""Median microseconds by row: bytes, or "shapes"."""


class Column(NamedTuple):
    """Theirs, ours to compare it with, and what it was."""

    name: str
    about: str
    theirs: Times
    ours: Times
    own_ours: bool
    """Whether `ours` was measured in the same run, and is printed beside it."""


def main(folder: Path) -> None:
    """Print the table of a folder."""
    columns = mpi_columns(folder)
    columns += peer_columns(folder, columns[0].ours if columns else {})
    if not columns:
        sys.exit("nothing was measured")
    print(
        "Microseconds a call, medians. `ours` is Ringfold's auto under the MPI on its"
    )
    print("right, in the same run; in brackets the time over ours, for gloo and")
    print("tensorflow over the first of ours: above 1 ours is faster.\n")
    for column in columns:
        print(f"  {column.name:<11} {column.about}")
    heads = (
        OURS.format("ours") * column.own_ours + THEIRS.format(column.name)
        for column in columns
    )
    print(f"\n{'all_reduce':>10}{''.join(heads)}")
    for row in dict.fromkeys(key for column in columns for key in column.theirs):
        print(f"{label(row):>10}" + "".join(cells(column, row) for column in columns))


def mpi_columns(folder: Path) -> list[Column]:
    """Return each MPI's own call, and ours under it."""
    columns = []
    for mpi in MPIS:
        files = [folder / f"{mpi}{suffix}.json" for suffix in ("", "-shapes")]
        if not all(file.exists() for file in files):
            continue
        sized, shaped = (json.loads(file.read_text()) for file in files)
        about = f"raw Allreduce of {sized['mpi']}, in place, one per array; memory: "
        theirs, ours = (times_of(sized, shaped, name) for name in ("mpi", "auto"))
        columns.append(Column(mpi, about + sized["memory"][0], theirs, ours, True))
    return columns


def times_of(sized: dict[str, Any], shaped: dict[str, Any], algorithm: str) -> Times:
    """Return the times of an algorithm in two documents of `ringfold bench`."""
    rows = [(str(row["bytes"]), row) for row in sized["rows"]]
    rows += [("shapes", row) for row in shaped["rows"]]
    return {
        name: row["time_us"]["median"]
        for name, row in rows
        if row["algorithm"] == algorithm
    }


def peer_columns(folder: Path, ours: Times) -> list[Column]:
    """Return the peers that ran."""
    columns = []
    for peer in PEERS:
        if (folder / f"{peer}.json").exists():
            found = json.loads((folder / f"{peer}.json").read_text())
            times = {name: row["median"] for name, row in found["rows"].items()}
            columns.append(Column(peer, found["title"], times, ours, False))
    return columns


def cells(column: Column, row: str) -> str:
    """Return ours, if it is printed, and theirs with the ratio of the two."""
    theirs, ours = column.theirs.get(row), column.ours.get(row)
    first = OURS.format(number(ours)) if column.own_ours else ""
    ratio = f"({theirs / ours:.2f})" if theirs and ours else ""
    return first + THEIRS.format(f"{number(theirs)} {ratio:>8}")


def number(time_us: float | None) -> str:
    """Return microseconds in few characters."""
    if time_us is None:
        return "N/A"
    return f"{time_us:.1f}" if time_us < 1e4 else f"{time_us:.0f}"


def label(row: str) -> str:
    """Return a size with its unit, or the name of the list of arrays."""
    if not row.isdigit():
        return "ResNet-50"
    kib = int(row) >> 10
    return f"{kib >> 10} MiB" if kib >= 1024 else f"{kib} KiB"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
