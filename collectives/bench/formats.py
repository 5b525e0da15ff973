"""Four ways to print the same results, in one table.

A format is three functions that return text: what comes first, what follows each size
as soon as it is measured, and what comes last.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from collectives.bench import columns, floor
from collectives.bench.case import IN_PLACE, OUT_OF_PLACE
from collectives.bench.results import Facts, Measured, Row, average_busbw, total_wrong

__all__ = ["FORMATS", "Format", "as_json", "document", "identity"]


class Format(NamedTuple):
    """How a run is printed: `begin` and `end` once, `rows` after every size."""

    begin: Callable[[Facts], str]
    rows: Callable[[Facts, list[Row]], str]
    end: Callable[[Facts, list[Row]], str]


def _nothing(*_: object) -> str:
    return ""


def _figures(row: Row, place: str) -> dict[str, Any]:
    measured = row.places[place]
    return {
        "time_us": measured.time_us,
        "algbw_gbps": row.algbw(place),
        "busbw_gbps": row.busbw(place),
        "wrong": measured.wrong,
        "calls": measured.calls,
        "repetitions": measured.seconds.shape[1],
        "floor_us": row.floor_us(place),
        "over_floor": row.over_floor(place),
    }


def identity(facts: Facts, row: Row) -> dict[str, Any]:
    """Return what was measured, apart from the figures."""
    return {
        "collective": facts.collective,
        "bytes": row.size.nbytes,
        "count": row.size.count,
        "dtype": facts.dtype,
        "op": facts.op,
        "root": facts.root,
        "ranks": facts.ranks,
        "hosts": len(facts.hosts),
        "algorithm": row.algorithm,
        "chosen": row.chosen or row.algorithm,
        **vars(row.form),
    }


def _json_row(facts: Facts, row: Row) -> dict[str, Any]:
    """One row: the figures in place, where they exist, and the others nested."""
    entry = identity(facts, row) | {"place": row.headline} | _figures(row, row.headline)
    if row.headline == IN_PLACE:
        exists = OUT_OF_PLACE in row.places
        entry[OUT_OF_PLACE] = _figures(row, OUT_OF_PLACE) if exists else None
    return entry


def document(
    facts: Facts, rows: list[Row], entries: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the facts and the verdict around the entries of the rows."""
    wrong = total_wrong(rows)
    return {
        "ringfold": facts.versions["ringfold"],
        "mpi": facts.mpi,
        "mpi_library": facts.mpi_library,
        "topology": facts.topology,
        "command": facts.command,
        "date": facts.date,
        "host_map": facts.host_map,
        "processes": facts.processes,
        "versions": facts.versions,
        "settings": facts.settings,
        "method": facts.method,
        "buffers": facts.buffers,
        "memory": facts.memory,
        "notes": facts.notes,
        "rows": entries,
        "out_of_bounds": {"count": wrong, "okay": None if wrong is None else not wrong},
    }


def as_json(facts: Facts, rows: list[Row]) -> str:
    """Return a run as one JSON object; its keys are described in docs/bench.md."""
    whole = document(facts, rows, [_json_row(facts, row) for row in rows])
    whole["floor"] = floor.METHOD
    whole["average_bus_bandwidth"] = {"bandwidth": average_busbw(rows)}
    return json.dumps(whole, indent=1, allow_nan=False)


CSV_COLUMNS = (
    *("collective", "bytes", "count", "dtype", "op", "root", "ranks", "hosts"),
    *("algorithm", "chosen", "registered", "shared", "touched", "place"),
    *("time_us_min", "time_us_median", "time_us_max"),
    *("algbw_gbps", "busbw_gbps", "wrong"),
    *("floor_us_min", "floor_us_median", "over_floor_min", "over_floor_median"),
)


def _csv_begin(facts: Facts) -> str:
    return ",".join(CSV_COLUMNS)


def _csv_rows(facts: Facts, rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(
        text, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n"
    )
    for row in rows:
        for place in row.places:
            figures = _figures(row, place)
            spread = {
                f"{name}_{key}": value
                for name in ("time_us", "floor_us", "over_floor")
                for key, value in (figures[name] or {}).items()
            }
            writer.writerow(identity(facts, row) | {"place": place} | figures | spread)
    return text.getvalue().rstrip("\n")


def _osu_begin(facts: Facts) -> str:
    title = facts.collective.replace("all_", "all").replace("_", " ").capitalize()
    lines = [f"Ringfold MPI {title} Latency Test {facts.versions['ringfold']}"]
    lines += [f"Datatype: {facts.dtype}.", *facts.notes]
    return "\n".join(f"# {line}" for line in lines)


def _osu_end(facts: Facts, rows: list[Row]) -> str:
    """Return a table per algorithm: mean over calls; mean, min and max over ranks."""
    lines = []
    for name in dict.fromkeys(row.name for row in rows):
        mine = [row for row in rows if row.name == name]
        lines += ["", f"# Algorithm: {name}, {mine[0].headline.replace('_', ' ')}"]
        head = ("Avg Latency(us)", "Min Latency(us)", "Max Latency(us)")
        titles = f"{head[0]:>20}{head[1]:>20}{head[2]:>20}{'Iterations':>12}"
        lines.append(f"{'# Size':<10}{titles}{'Validation':>12}")
        lines += [_osu_row(row, row.places[row.headline]) for row in mine]
    return "\n".join(lines)


def _osu_row(row: Row, measured: Measured) -> str:
    by_rank = measured.seconds.mean(axis=1) * 1e6
    figures = (np.mean(by_rank), np.min(by_rank), np.max(by_rank))
    iterations = measured.calls * measured.seconds.shape[1]
    verdict = {None: "-", 0: "Pass"}.get(measured.wrong, "Fail")
    times = "".join(f"{figure:20.2f}" for figure in figures)
    return f"{row.size.nbytes:<10}{times}{iterations:12}{verdict:>12}"


FORMATS = {
    "nccl": Format(columns.header, columns.rows, columns.footer),
    "osu": Format(_osu_begin, _nothing, _osu_end),
    "csv": Format(_csv_begin, _csv_rows, _nothing),
    "json": Format(_nothing, _nothing, as_json),
}
