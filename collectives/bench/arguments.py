"""The command line of `ringfold bench`: text in, one frozen `Request` out."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.bench.cases import CASES, DTYPES
from collectives.bench.flags import algorithms_of, make_parser
from collectives.bench.usage import Parser

__all__ = ["Request", "parse", "sizes_between"]


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


def sizes_between(low: int, high: int, factor: int, step: int | None) -> list[int]:
    """Return the sizes from `low` to `high`, both included if hit, as nccl-tests does.

    They grow by `step` bytes where it is given and by `factor` otherwise.
    """
    if step is not None:
        return list(range(low, high + 1, step))
    if low == 0:
        return [0]  # which no factor makes larger
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
    parser = make_parser()
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
