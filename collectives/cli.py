"""The command `ringfold`, and `python -m collectives`."""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import collectives
from collectives import exits
from collectives.bench.usage import Usage, refuse, show
from collectives.errors import InvalidArgumentError, LaunchError
from collectives.launcher import read_launch

__all__ = ["main"]

# Command -> the module whose main(argv) runs it, and what it does.
COMMANDS = {
    "bench": ("collectives.bench", "measure a collective against the raw MPI call"),
    "bench strategy": ("strategy.bench", "measure what a strategy adds to it"),
    "tune": ("collectives.tune", "measure what calls cost here, for AUTO to know"),
    "doctor": ("collectives.doctor", "check this machine, its MPI and this job"),
    "cluster": ("strategy.cluster_command", "show which task of a cluster a rank is"),
    "trace": ("collectives.trace", "compare what the ranks of a failed job did last"),
}

HELP = "\n".join(
    [
        "usage: ringfold COMMAND [ARGUMENTS]",
        "       ringfold SCRIPT.py [ARGUMENTS]",
        "       ringfold --version | --help",
        "",
        *(f"  {name:16}{what}" for name, (_, what) in COMMANDS.items()),
        "  SCRIPT.py       run a script; a failure on one rank ends the whole job",
        "",
        "ringfold COMMAND --help says more; python -m collectives is the same program.",
    ]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status, the same on every rank.

    0 for success, 1 for a failed check, 2 for a command line that will not do.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    first = arguments[0] if arguments else "--help"
    if " ".join(arguments[:2]) in COMMANDS:
        return _run_command(" ".join(arguments[:2]), arguments[2:])
    if first in COMMANDS:
        return _run_command(first, arguments[1:])
    if first in ("-h", "--help"):
        return refuse(Usage(HELP, 0))
    if first == "--version":
        return refuse(Usage(f"ringfold {collectives.__version__}", 0))
    if Path(first).is_file():
        run_script(first, arguments[1:])
        return 0
    known = ", ".join(COMMANDS)
    return refuse(
        Usage(f"{first!r} is no command and no file; wanted {known} or a script")
    )


def _run_command(name: str, arguments: list[str]) -> int:
    command: Callable[[list[str]], int] = import_module(COMMANDS[name][0]).main
    try:
        return command(arguments)
    except (LaunchError, InvalidArgumentError) as error:
        # The job or the environment will not do; a traceback would add nothing. Some
        # launchers kill a job at its first failure: rank 0 shall have spoken by then.
        rank = read_launch().rank or 0
        if rank != 0:
            time.sleep(1.0)
        return show(Usage(str(error)), rank)


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run a script as Python would, with every exit hook in place from the start."""
    exits.install()
    sys.argv = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    runpy.run_path(path, run_name="__main__")
