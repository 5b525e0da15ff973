"""Measure collectives against the raw MPI call: `ringfold bench`."""

from __future__ import annotations

import shlex

import collectives
from collectives.bench.arguments import parse
from collectives.bench.driver import run
from collectives.bench.usage import Usage, agree, refuse, show

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Run `ringfold bench` with these arguments; return the exit status.

    Collective: 0, 1 if a result was wrong, 2 if the arguments will not do; the same
    on every rank.
    """
    try:
        request = parse(argv)
    except Usage as usage:
        return refuse(usage)
    comm = collectives.world()
    command = " ".join(["ringfold bench", *map(shlex.quote, argv)])
    try:
        return run(comm, agree(comm, request), command)
    except Usage as usage:
        return show(usage, comm.rank)
