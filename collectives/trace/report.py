"""The comparison in words, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from collectives.recorder import short_list
from collectives.trace.divergence import GroupView, Row
from collectives.trace.files import Dump


def render(dumps: Sequence[Dump], groups: Sequence[GroupView]) -> str:
    """Return the report, without a newline at its end."""
    lines = [_head(dumps)]
    for group in groups:
        lines += ["", *_group(group)]
    return "\n".join(lines)


def _head(dumps: Sequence[Dump]) -> str:
    size = dumps[0].size
    absent = sorted(set(range(size)) - {dump.rank for dump in dumps})
    text = f"{len(dumps)} of {size} ranks have written a file"
    if absent:
        text += f"; none is there of {_ranks(absent)}"
    reasons: dict[str, list[int]] = {}
    for dump in dumps:
        reasons.setdefault(dump.reason, []).append(dump.rank)
    latest = max(dump.written_ns for dump in dumps)
    clock = datetime.fromtimestamp(latest / 1e9).strftime("%H:%M:%S")
    told = "; ".join(f"{_ranks(ranks)}: {why}" for why, ranks in reasons.items())
    return f"{text}\nthe last one at {clock}, because: {told}"


def _group(group: GroupView) -> list[str]:
    name = f"group {short_list(group.ranks)}"
    if group.background:
        name += " of calls in the background"
    common = group.common
    if common is None:
        before = "no call that all have made is on record"
    else:
        before = f"the last common call is {_call(common)}"
    if not group.sequence:
        return [f"{name}: no divergence; {before}"]
    if group.diverges:
        lines = [f"{name}: the ranks part at call #{group.sequence}", f"  {before}"]
    else:
        lines = [f"{name}: no divergence for sure; {before}; call #{group.sequence}:"]
    lines += [f"  {line}" for line in _table(group.rows)]
    if group.behind:
        lines.append(f"  ahead: {_ranks(group.ahead)}; behind: {_ranks(group.behind)}")
    for row in group.rows:
        if row.meanwhile:
            lines.append(f"  rank {row.rank} meanwhile: {row.meanwhile}")
    whys = {row.why: row.rank for row in reversed(group.rows) if row.why}
    shown = list(whys.items())[::-1][:1]
    lines += [f"  rank {rank} said: {why}" for why, rank in shown]
    return lines


def _call(row: Row) -> str:
    return f"{row.call}, {row.state}, at {row.site}"


def _table(rows: Sequence[Row]) -> list[str]:
    """Return aligned rows, one for all ranks that are at the same place."""
    alike: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.state, row.call, row.site), []).append(row)
    cells = [
        (_ranks([row.rank for row in same]), state, call, _seconds(same), site)
        for (state, call, site), same in alike.items()
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]


def _seconds(rows: Sequence[Row]) -> str:
    seconds = max(row.seconds for row in rows)
    ago = " ago" if rows[0].state == "absent" else ""
    return f"{seconds:.2f} s{ago}" if seconds else ""


def _ranks(ranks: Sequence[int]) -> str:
    """Return `rank 3`, or `ranks 0 2-5`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
