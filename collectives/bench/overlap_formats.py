"""How overlap is printed: OSU's table of non-blocking collectives, or JSON."""

from __future__ import annotations

import json

from collectives.bench import columns
from collectives.bench.formats import Format, document, identity
from collectives.bench.results import Facts, Row

__all__ = [
    "BLOCKING",
    "COMPUTATION",
    "FORMATS",
    "OVERALL",
    "STARTED",
    "overlap_percent",
]

# What is timed; a row has these in place of places.
OVERALL, COMPUTATION = "overall", "computation"
BLOCKING, STARTED = "blocking", "started"


def overlap_percent(row: Row) -> float:
    """Return how much of the blocking call was saved: negative where it took longer."""
    us = {thing: measured.time_us["median"] for thing, measured in row.places.items()}
    saved = us[BLOCKING] + us[COMPUTATION] - us[OVERALL]
    return 100 * saved / us[BLOCKING]


LEFT = "{:<12}"
TIME = "{:>16}"
RIGHT = "{:>12}{:>8}  {}"
HEADS = {
    OVERALL: "Overall(us)",
    COMPUTATION: "Compute(us)",
    BLOCKING: "Comm.(us)",
    STARTED: "Started(us)",
}
EXPLAINED = (
    "Overall: the call is started, something is computed, the call is waited for",
    "Compute: that alone; Comm.: the blocking call; Started: start and wait at once",
    "Overlap: (Comm. + Compute - Overall) / Comm.; below 0 it costs more than it saves",
)


def _begin(facts: Facts) -> str:
    heads = "".join(map(TIME.format, HEADS.values()))
    lines = [*columns.preamble(facts), *(f" {line}" for line in EXPLAINED), ""]
    table = LEFT.format("# Size") + heads + RIGHT.format("Overlap(%)", "#wrong", "")
    return "\n".join([f"#{line}".rstrip() for line in lines] + [table + "algorithm"])


def _rows(facts: Facts, rows: list[Row]) -> str:
    lines = []
    for row in rows:
        wrong = row.places[OVERALL].wrong
        times = (row.places[thing].time_us["median"] for thing in HEADS)
        lines.append(
            LEFT.format(row.size.nbytes)
            + "".join(TIME.format(f"{us:.2f}") for us in times)
            + RIGHT.format(
                f"{overlap_percent(row):.1f}",
                "N/A" if wrong is None else wrong,
                columns.label(row),
            )
        )
    return "\n".join(lines)


def _end(facts: Facts, rows: list[Row]) -> str:
    return "\n".join([*columns.verdict(facts, rows), *columns.busy(rows), "#"])


def _as_json(facts: Facts, rows: list[Row]) -> str:
    entries = []
    for row in rows:
        entry = identity(facts, row)
        entry |= {f"{t}_us": measured.time_us for t, measured in row.places.items()}
        whole = row.places[OVERALL]
        entry |= {"overlap_percent": overlap_percent(row), "wrong": whole.wrong}
        entry |= {"calls": whole.calls, "repetitions": whole.seconds.shape[1]}
        entries.append(entry)
    return json.dumps(document(facts, rows, entries), indent=1, allow_nan=False)


FORMATS = {
    "osu": Format(_begin, _rows, _end),
    "json": Format(lambda facts: "", lambda facts, rows: "", _as_json),
}
