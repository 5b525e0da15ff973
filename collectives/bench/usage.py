"""Saying once, on one rank, what every rank found wrong with its command line.

Every rank of a job parses the same command line. Each would print the same error, so
the ranks agree first: a mistake on any of them becomes the same `Usage` on all.
"""

from __future__ import annotations

import argparse
import sys
from typing import IO, NoReturn, TypeVar

import collectives
from collectives.communicator import Communicator
from collectives.launcher import read_launch

__all__ = ["Parser", "Usage", "agree", "refuse", "show"]

T = TypeVar("T")


class Usage(Exception):
    """What to print instead of running, and the exit status: 0 for help, 2 else."""

    def __init__(self, text: str, status: int = 2) -> None:
        """Remember the text, one line where it is an error."""
        super().__init__(text, status)
        self.text = text
        self.status = status


class Parser(argparse.ArgumentParser):
    """A parser that raises `Usage` where argparse prints and exits."""

    def error(self, message: str) -> NoReturn:
        """Raise the message in one line; the converters list what could be given."""
        raise Usage(message)

    def synopsis(self) -> str:
        """Return every flag in one line."""
        return " ".join(self.format_usage().split())

    def print_help(self, file: IO[str] | None = None) -> NoReturn:  # type: ignore[override]
        """Raise the help text with status 0."""
        raise Usage(self.format_help().rstrip(), 0)


def agree(comm: Communicator, mine: T | Usage) -> T:
    """Return `mine` if every rank has the same; else raise the same `Usage` on all.

    Collective. Ranks started with different arguments would only meet in a call that
    they describe differently, or not at all.
    """
    everyones = comm.all_gather_object(mine)
    for rank, theirs in enumerate(everyones):
        if isinstance(theirs, Usage):
            everywhere = all(isinstance(other, Usage) for other in everyones)
            where = "" if everywhere else f"rank {rank}: "
            raise Usage(where + theirs.text, theirs.status)
    for rank, theirs in enumerate(everyones):
        if theirs != everyones[0]:
            raise Usage(
                f"rank {rank} was started with other arguments than rank 0: {theirs} "
                f"against {everyones[0]}; wanted the same on every rank"
            )
    assert not isinstance(mine, Usage)
    return mine


def refuse(usage: Usage) -> int:
    """Print a usage text once, whatever the launcher, and return its exit status.

    Collective where the status is not 0: help and version need no MPI.
    """
    if usage.status == 0 or read_launch().at_least == 1:
        return show(usage, read_launch().rank or 0)
    comm = collectives.world()
    try:
        agree(comm, usage)
    except Usage as agreed:
        return show(agreed, comm.rank)
    raise AssertionError(f"no rank was told of the usage error: {usage.text}")


def show(usage: Usage, rank: int) -> int:
    """Print a usage text if this is rank 0, and return its exit status."""
    if rank == 0:
        prefix = "" if usage.status == 0 else "ringfold: error: "
        stream = sys.stdout if usage.status == 0 else sys.stderr
        print(prefix + usage.text, file=stream, flush=True)
    return usage.status
