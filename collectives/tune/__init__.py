"""`ringfold tune`: measure what calls cost here, write the table that AUTO reads.

Under mpirun it measures the curves of costs.py (fitting.py), decides for every size
(ruling.py) and writes a table (making.py). `--check` compares AUTO with every fixed
algorithm (regret.py). `--predict` needs no MPI: it computes what a larger machine would
do (predicting.py).
"""

from __future__ import annotations

import collectives
from collectives.algorithms import TABLE
from collectives.bench.flags import parse_size
from collectives.bench.usage import Parser, Usage, agree, refuse, show
from collectives.tune import making, predicting, regret

__all__ = ["main"]

OUTPUT = "ringfold-table.json"


def main(argv: list[str]) -> int:
    """Run `ringfold tune` with these arguments; return the exit status."""
    try:
        known = _parser().parse_args(argv)
        if known.predict:
            predicting.run(known)
            return 0
    except Usage as usage:
        return refuse(usage)
    comm = collectives.world()
    try:
        agree(comm, tuple(argv))
        if known.check:
            regret.run(comm, known.collective, known.most)
        else:
            making.run(comm, known.output, argv)
    except Usage as usage:
        return show(usage, comm.rank)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="ringfold tune",
        description="Under mpirun: measure what calls cost here, in some seconds, and "
        "write a table; RINGFOLD_TABLE=FILE makes AUTO read it.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--output", metavar="FILE", default=OUTPUT, help=f"the table ({OUTPUT})")
    add("--check", action="store_true", help="AUTO against every fixed algorithm")
    add("--collective", default="all_reduce", choices=sorted(TABLE), metavar="NAME")
    add("-e", dest="most", type=parse_size, default=64 << 20, metavar="MAX")
    ahead = parser.add_argument_group("a machine that one does not have, without MPI")
    add = ahead.add_argument
    add("--predict", action="store_true", help="times and bus bandwidth, computed")
    add("--hosts", type=int, default=2, metavar="H")
    add("--ranks-per-host", type=int, default=1, metavar="R")
    add("--table", metavar="FILE", help="costs from here; else shipped ones")
    add("--mpi", default="", metavar="NAME", help="whose shipped table to take")
    add("--latency-us", type=float, metavar="A", help="between hosts, instead")
    add("--link-gbs", type=float, metavar="B", help="GB/s of a host's link, instead")
    add("--plot", metavar="FILE", help="also draw it; needs matplotlib")
    return parser
