"""The command line of `ringfold bench`: text in, one frozen `Request` out."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import collectives
from collectives.bench.cases import BASELINE, CASES, DTYPES
from collectives.bench.formats import FORMATS
from collectives.bench.usage import Parser

__all__ = ["Request", "parse", "parse_size", "sizes_between"]

KIB = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Request:
    """What to measure and how; None where the benchmark decides.

    Sizes are in bytes, as asked: a collective may round them.
    """

    collective: str
    min_bytes: int
    max_bytes: int
    step: str
    sizes: tuple[int, ...]
    iterations: int | None
    warmup: int
    repetitions: int | None
    dtype: str
    op: str
    root: int
    check: bool
    algorithms: tuple[str, ...] | None
    format: str
    json: str | None


def parse_size(text: str) -> int:
    """Read a number of bytes with an optional suffix K, M or G (powers of 1024)."""
    found = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip().upper(), re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; wanted bytes such as 512, 64K, 16M or 1G"
        )
    return int(found[1]) * KIB[found[2]]


def sizes_between(low: int, high: int, factor: int, step: int | None) -> list[int]:
    """Return the sizes from `low` to `high`, both included if hit, as nccl-tests does.

    They grow by `step` bytes where it is given and by `factor` otherwise.
    """
    if step is not None:
        return list(range(low, high + 1, step))
    sizes = []
    while low <= high:
        sizes.append(low)
        low *= factor
    return sizes


def parse(argv: list[str]) -> Request:
    """Parse the arguments after `ringfold bench`.

    Raises:
        Usage: help was asked for, or something is unknown or out of range.
    """
    parser = _parser()
    known, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(f"unknown argument {unknown[0]!r}; {parser.synopsis()}")
    if known.collective is None:
        parser.error(f"no collective given; there are: {' '.join(CASES)}")
    if known.min > known.max:
        parser.error(f"-b {known.min} is above -e {known.max}")
    if known.step is None and known.min == 0 and known.max > 0:
        parser.error("-b 0 cannot grow by a factor; give a step with -i")
    sizes = sizes_between(known.min, known.max, known.factor, known.step)
    if known.min == known.max == 0:
        sizes = [0]
    by_step, by_factor = f"{known.step}(bytes)", f"{known.factor}(factor)"
    return Request(
        collective=known.collective,
        min_bytes=known.min,
        max_bytes=known.max,
        step=by_factor if known.step is None else by_step,
        sizes=tuple(sizes),
        iterations=known.iterations,
        warmup=known.warmup,
        repetitions=known.repetitions,
        dtype=DTYPES[known.dtype],
        op=known.op,
        root=known.root,
        check=bool(known.check),
        algorithms=_algorithms(parser, known.algorithm, known.collective),
        format=known.format,
        json=known.json,
    )


def algorithms_of(collective: str) -> tuple[str, ...]:
    """Return the algorithms that can be compared; some collectives have but one."""
    return (BASELINE, *collectives.ALGORITHMS.get(collective, ("auto",)))


def _algorithms(
    parser: Parser, text: str | None, collective: str
) -> tuple[str, ...] | None:
    """Split a list of algorithms; None if none was given."""
    if text is None:
        return None
    known = algorithms_of(collective)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in known:
            parser.error(
                f"unknown algorithm {name!r}; {collective} has: {' '.join(known)}"
            )
    return names


def _one_of(what: str, names: Iterable[str]) -> Callable[[str], str]:
    """Return a converter that accepts these names and lists them otherwise."""
    known = list(names)

    def convert(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(
                f"unknown {what} {text!r}; there are: {' '.join(known)}"
            )
        return text

    return convert


def _at_least(lowest: int, convert: Callable[[str], int] = int) -> Callable[[str], int]:
    """Return a converter to an integer of at least `lowest`."""

    def converted(text: str) -> int:
        try:
            value = convert(text)
        except ValueError:
            value = lowest - 1
        if value < lowest:
            raise argparse.ArgumentTypeError(
                f"{text!r} will not do; wanted an integer of at least {lowest}"
            )
        return value

    return converted


def _parser() -> Parser:
    parser = Parser(
        prog="ringfold bench",
        description="Measure a collective and print the table of nccl-tests: sizes "
        "with K, M, G = powers of 1024, rates with GB = 1e9 bytes.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "collective",
        nargs="?",
        type=_one_of("collective", CASES),
        metavar="COLLECTIVE",
        help=" ".join(CASES),
    )
    sizes = parser.add_argument_group("sizes")
    sizes.add_argument(
        "-b", dest="min", type=parse_size, default=1 << 10, metavar="MIN", help="1K"
    )
    sizes.add_argument(
        "-e", dest="max", type=parse_size, default=64 << 20, metavar="MAX", help="64M"
    )
    growth = sizes.add_mutually_exclusive_group()
    growth.add_argument(
        "-f",
        dest="factor",
        type=_at_least(2),
        default=4,
        metavar="FACTOR",
        help="between sizes (4)",
    )
    growth.add_argument(
        "-i",
        dest="step",
        type=_at_least(1, parse_size),
        metavar="STEP",
        help="bytes between sizes, instead of a factor",
    )
    add(
        "-n",
        dest="iterations",
        type=_at_least(1),
        metavar="ITERS",
        help="calls a batch (2-20, by duration)",
    )
    add(
        "-w",
        dest="warmup",
        type=_at_least(0),
        default=2,
        metavar="WARMUP",
        help="untimed calls before each size and algorithm (2)",
    )
    add(
        "--repetitions",
        type=_at_least(1),
        metavar="R",
        help="batches of each algorithm at each size (5-100, by duration)",
    )
    add(
        "-d",
        dest="dtype",
        type=_one_of("dtype", DTYPES),
        default="float32",
        metavar="DTYPE",
        help=" ".join(DTYPES),
    )
    add(
        "-o",
        dest="op",
        type=_one_of("op", collectives.OPS),
        default="sum",
        metavar="OP",
        help=" ".join(collectives.OPS),
    )
    add("-r", dest="root", type=_at_least(0), default=0, metavar="ROOT", help="0")
    add(
        "-c",
        dest="check",
        type=int,
        choices=(0, 1),
        default=1,
        help="whether to check results, in a separate pass (1)",
    )
    add(
        "--algorithm",
        metavar="A[,B...]",
        help="compared in one run (mpi,auto); mpi is the raw mpi4py call",
    )
    add(
        "--format",
        type=_one_of("format", FORMATS),
        default="nccl",
        metavar="FORMAT",
        help=" ".join(FORMATS),
    )
    add("--json", metavar="FILE", help="also write every figure to FILE")
    return parser
