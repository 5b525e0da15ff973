"""The table of nccl-tests, with our own columns after its own."""

from __future__ import annotations

from collectives.bench import floor
from collectives.bench.case import IN_PLACE, OUT_OF_PLACE
from collectives.bench.results import (
    DISTURBED,
    Facts,
    Row,
    average_busbw,
    disturbed,
    ratios,
    total_wrong,
)

__all__ = ["busy", "footer", "header", "label", "preamble", "rows", "verdict"]

LEFT = "{:>12}  {:>12}  {:>10}  {:>6}  {:>6}"
PLACE = "  {:>8}  {:>6}  {:>6}  {:>6}"
RIGHT = "  {:>8}  {:>8}  {:>6}  {:>6}  {:>6}  {}"


def preamble(facts: Facts) -> list[str]:
    """Return what is said about a run above any table."""
    versions = ", ".join(
        f"{name} {version}" for name, version in facts.versions.items()
    )
    processes = [
        f" Rank {p['rank']:>2} Pid {p['pid']:>7} on {p['host']} cores {p['cores']}"
        for p in facts.processes
    ]
    return [
        f" {facts.settings}",
        f" {versions}",
        f" MPI: {facts.mpi_library or 'none, a world of one rank'}",
        f" Topology: {facts.topology}",
        f" Time: {facts.method}",
        f" Buffers: {facts.buffers}",
        f" Memory: {facts.memory[0]}",
        *(f" Note: {note}" for note in facts.notes),
        "",
        " Using processes",
        *processes,
        "",
    ]


def header(facts: Facts) -> str:
    """Return everything above the first row."""
    gap, place = " " * len(LEFT.format(*[""] * 5)), len(PLACE.format(*[""] * 4))
    names = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    more = ("min", "floor", "/floor", *[f"vs {facts.baseline}"] * 2, "algorithm")
    more_units = ("(us)", "(us)", "(x)", "median", "min", "")
    lines = [
        *preamble(facts),
        f" Floor: {floor.METHOD}",
        "",
        gap[1:] + "out-of-place".center(place) + "in-place".center(place),
        LEFT.format("size", "count", "type", "redop", "root")[1:]
        + PLACE.format(*names) * 2
        + RIGHT.format(*more),
        LEFT.format("(B)", "(elements)", "", "", "")[1:]
        + PLACE.format(*units) * 2
        + RIGHT.format(*more_units),
    ]
    return "\n".join(f"#{line}".rstrip() for line in lines)


def rows(facts: Facts, of_one_size: list[Row]) -> str:
    """Return one line per algorithm."""
    baseline = next((r for r in of_one_size if r.algorithm == r.case.baseline), None)
    return "\n".join(_row(facts, row, baseline) for row in of_one_size)


def _row(facts: Facts, row: Row, baseline: Row | None) -> str:
    left = LEFT.format(
        row.size.nbytes, row.size.count, facts.dtype, facts.op, facts.root
    )
    return (
        left + _place(row, OUT_OF_PLACE) + _place(row, IN_PLACE) + _right(row, baseline)
    )


def _right(row: Row, baseline: Row | None) -> str:
    """Return our own columns, which are about the headline place."""
    place = row.headline
    floor_us, over = row.floor_us(place), row.over_floor(place)
    times = ratios(baseline, row)
    return RIGHT.format(
        _us(row.places[place].time_us["min"]),
        "N/A" if floor_us is None else _us(floor_us["median"]),
        "N/A" if over is None else f"{over['median']:.2f}",
        *("N/A" if times is None else f"{times[key]:.2f}" for key in ("median", "min")),
        label(row),
    )


def label(row: Row) -> str:
    """Return the algorithm, what it stands for, and the form of its arrays."""
    stands_for = "" if row.chosen is None else f" ({row.chosen})"
    return f"{row.algorithm}{stands_for} {row.form}".rstrip()


def _place(row: Row, place: str) -> str:
    if place not in row.places:
        return PLACE.format(*["N/A"] * 4)
    measured = row.places[place]
    wrong = "N/A" if measured.wrong is None else measured.wrong
    algbw, busbw = row.algbw(place), row.busbw(place)
    time_us = _us(measured.time_us["median"])
    return PLACE.format(time_us, f"{algbw:.2f}", f"{busbw:.2f}", wrong)


def _us(time_us: float) -> str:
    """Return microseconds in no more than eight characters."""
    decimals = 2 if time_us < 1e4 else 1 if time_us < 1e6 else 0
    return f"{time_us:.{decimals}f}"


def footer(facts: Facts, everything: list[Row]) -> str:
    """Return the verdict and the mean bandwidths."""
    lines = [
        *verdict(facts, everything),
        f"# Avg bus bandwidth    : {average_busbw(everything):g}",
    ]
    names = list(dict.fromkeys(row.name for row in everything))
    if len(names) > 1:
        means = (f"{name} {average_busbw(everything, name):g}" for name in names)
        lines.append(f"# of each algorithm    : {', '.join(means)}")
    return "\n".join([*lines, *busy(everything), "#"])


def verdict(facts: Facts, everything: list[Row]) -> list[str]:
    """Say how many elements were wrong, and how memory is in the end."""
    wrong = total_wrong(everything)
    text = "N/A" if wrong is None else f"{wrong} {'FAILED' if wrong else 'OK'}"
    lines = [f"# Out of bounds values : {text}"]
    return [*lines, f"# Memory afterwards    : {facts.memory[-1]}"]


def busy(everything: list[Row]) -> list[str]:
    """Say whether something else used the cores."""
    count = disturbed(everything)
    if not count:
        return []
    return [
        f"# Note: in {count} of {len(everything)} rows the median is above "
        f"{DISTURBED:g} times the minimum: something else used the cores"
    ]
