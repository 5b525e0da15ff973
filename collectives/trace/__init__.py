"""`ringfold trace`: compare the flight recorders' files of the ranks of a job.

The files (files.py) become calls by group and number; the first number at which the
ranks part (divergence.py) is shown (report.py), and all calls can be written as a
timeline (chrome.py). Needs no MPI and no job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

from collectives.bench.usage import Parser, Usage, show
from collectives.trace.chrome import write_timeline
from collectives.trace.divergence import compare
from collectives.trace.files import BadTraceError, read_files
from collectives.trace.report import render

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run `ringfold trace`; return 1 if the ranks part, 2 for files that won't do."""
    parser = Parser(
        prog="ringfold trace",
        description="Compare the flight recorders' files of the ranks of a job "
        "(RINGFOLD_TRACE=FOLDER) and show, for every group, the first call at which "
        "the ranks part. The exit status is 1 if they do.",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="FOLDER|FILE", help="what the ranks have written"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument(
        "--chrome",
        metavar="FILE",
        help="also write a timeline for chrome://tracing or ui.perfetto.dev",
    )
    try:
        options = parser.parse_args(arguments)
        dumps = read_files(options.paths)
        groups = compare(dumps, time.time_ns())
        if options.chrome:
            write_timeline(options.chrome, dumps)
    except Usage as usage:
        return show(usage, 0)
    except (BadTraceError, OSError) as error:
        return show(Usage(str(error)), 0)
    if options.json:
        print(json.dumps([asdict(group) for group in groups], indent=1))
    else:
        print(render(dumps, groups))
    return int(any(group.diverges for group in groups))
