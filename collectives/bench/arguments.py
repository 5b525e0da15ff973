"""The command line of `ringfold bench`: text in, one frozen `Request` out."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

import numpy as np

from collectives.bench.cases import CASES, HOST, cases_on
from collectives.bench.flags import algorithms_of, make_parser
from collectives.bench.formats import FORMATS
from collectives.bench.overlap_formats import FORMATS as OVERLAP_FORMATS
from collectives.bench.shapes import MODELS, ShapeList, read_shapes
from collectives.bench.usage import Parser

__all__ = ["Request", "parse", "sizes_between"]


@dataclass(frozen=True)
class Request:
    """What to measure and how; None where the benchmark decides.

    Sizes are in bytes, as asked: a collective may round them. `shapes` is empty unless
    the collective takes a list of arrays; their size is the only one then.
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
    shapes: ShapeList
    device: str
    registered: bool
    result: str
    touch: bool
    overlap: bool
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
    _check_device(parser, known)
    shapes = _shapes(parser, known)
    _check_form(parser, known)
    low, high, step, sizes = _sizes(parser, known, shapes)
    return Request(
        collective=known.collective,
        min_bytes=low,
        max_bytes=high,
        step=step,
        sizes=tuple(sizes),
        iterations=known.iterations,
        warmup=known.warmup,
        repetitions=known.repetitions,
        dtype=known.dtype,
        op=known.op,
        root=known.root,
        check=bool(known.check),
        algorithms=_algorithms(parser, known.algorithm, known.collective, known.device),
        shapes=shapes,
        device=known.device,
        registered=known.registered,
        result=known.result,
        touch=known.touch,
        overlap=known.overlap,
        format=_format(parser, known),
        json=known.json,
    )


def _shapes(parser: Parser, known: Namespace) -> ShapeList:
    """Return the shapes of a list of arrays; none for other collectives."""
    if CASES[known.collective].listed:
        return known.shapes or read_shapes(MODELS[0])
    if known.shapes is not None:
        takers = " ".join(name for name, case in CASES.items() if case.listed)
        parser.error(f"--shapes is not for {known.collective}; it is for: {takers}")
    return ShapeList("none", ())


def _check_device(parser: Parser, known: Namespace) -> None:
    """Refuse what is not measured with arrays on GPUs."""
    if known.device == HOST:
        return
    takers = cases_on(known.device)
    if known.collective not in takers:
        parser.error(
            f"--device {known.device} is not for {known.collective}; it is for: "
            f"{' '.join(takers)}"
        )
    if known.registered or known.overlap:
        form = "--registered" if known.registered else "--overlap"
        parser.error(f"--device {known.device} is not for {form}")
    if known.dtype == "bfloat16":
        parser.error("CuPy knows no dtype bfloat16")


def _check_form(parser: Parser, known: Namespace) -> None:
    """Refuse forms of arrays that do not go together."""
    shared = known.result == "shared"
    if shared and not known.registered:
        parser.error("--result shared needs --registered")
    if known.touch and not shared:
        parser.error("--touch needs --registered --result shared")
    if known.registered and known.overlap:
        parser.error("--registered is not for --overlap")
    takers = [
        name for name, c in CASES.items() if (c.shared if shared else c.registered)
    ]
    if known.registered and known.collective not in takers:
        flags = "--registered --result shared" if shared else "--registered"
        parser.error(
            f"{flags} is not for {known.collective}; it is for: {' '.join(takers)}"
        )


def _sizes(
    parser: Parser, known: Namespace, shapes: ShapeList
) -> tuple[int, int, str, list[int]]:
    """Return the smallest and largest size, what is between, and all of them."""
    if shapes.shapes:
        size = shapes.elements * np.dtype(known.dtype).itemsize
        return size, size, f"{shapes.name}(shapes)", [size]
    low, high = known.min, known.max
    if low > high:
        parser.error(f"-b {low} is above -e {high}")
    if known.step is None and low == 0 and high > 0:
        parser.error("-b 0 cannot grow by a factor; give a step with -i")
    by_step, by_factor = f"{known.step}(bytes)", f"{known.factor}(factor)"
    step = by_factor if known.step is None else by_step
    return low, high, step, sizes_between(low, high, known.factor, known.step)


def _format(parser: Parser, known: Namespace) -> str:
    """Return the format that was asked for, or the first one of the table."""
    formats = OVERLAP_FORMATS if known.overlap else FORMATS
    name: str = known.format or next(iter(formats))
    if name not in formats:
        parser.error(f"--overlap has no format {name!r}; it has: {' '.join(formats)}")
    return name


def _algorithms(
    parser: Parser, text: str | None, collective: str, device: str
) -> tuple[str, ...] | None:
    """Split a list of algorithms; None if none was given."""
    if text is None:
        return None
    known = algorithms_of(collective, device)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in known:
            parser.error(
                f"unknown algorithm {name!r}; {collective} has: {' '.join(known)}"
            )
    return names
