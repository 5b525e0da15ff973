"""All ranks' calls as one timeline, in the format of Chrome's tracing page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collectives.recorder import short_list
from collectives.trace.files import Call, Dump
from collectives.tracefile import replace_file


def write_timeline(file: str, dumps: Sequence[Dump]) -> None:
    """Write the calls of all ranks: a process per rank, a row per group.

    Raises:
        OSError: the file cannot be written; what was there before is untouched.
    """
    starts = [call.start_ns for dump in dumps for call in dump.calls]
    origin = min(starts, default=0)
    events = [event for dump in dumps for event in _events(dump, origin)]
    timeline = {"traceEvents": events, "displayTimeUnit": "ms"}
    replace_file(Path(file), json.dumps(timeline))


def _events(dump: Dump, origin: int) -> list[dict[str, Any]]:
    row_of = {key: row for row, key in enumerate(sorted(dump.groups))}
    names = [_name("process_name", dump.rank, 0, f"rank {dump.rank} on {dump.host}")]
    for key, row in row_of.items():
        name = f"group {short_list(dump.groups[key])}"
        if key in dump.background:
            name += ", background"
        names.append(_name("thread_name", dump.rank, row, name))
    return names + [
        {
            "name": call.name,
            "cat": call.state,
            "ph": "X",
            "pid": dump.rank,
            "tid": row_of[call.group],
            "ts": (call.start_ns - origin) / 1e3,
            "dur": ((call.end_ns or dump.written_ns) - call.start_ns) / 1e3,
            "args": _details(call),
        }
        for call in dump.calls
    ]


def _name(kind: str, rank: int, row: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": rank, "tid": row, "args": {"name": name}}


def _details(call: Call) -> dict[str, str]:
    details = {"call": call.text, "state": call.state, "at": call.site}
    return {**details, "why": call.why} if call.why else details
