"""The flags of `ringfold bench` and how their texts are converted."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from importlib import import_module

import collectives
from collectives.bench.cases import CASES, DEVICES, HOST, cases_on
from collectives.bench.formats import FORMATS
from collectives.bench.patterns import UFUNCS
from collectives.bench.shapes import MODELS, read_shapes
from collectives.bench.usage import Parser
from collectives.gpu.facts import DEVICE_WAYS

__all__ = ["DTYPES", "algorithms_of", "make_parser", "parse_size"]

# Names of dtypes that may be given -> NumPy's; the second group is nccl-tests' words.
DTYPES = {
    name: name
    for name in (
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    )
} | {"half": "float16", "float": "float32", "double": "float64"}

RESULTS = ("own", "shared")

KIB = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def make_parser() -> Parser:
    """Return the parser of the arguments after `ringfold bench`."""
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
        "-b",
        dest="min",
        type=parse_size,
        default=1 << 10,
        metavar="MIN",
        help="smallest (1K)",
    )
    sizes.add_argument(
        "-e",
        dest="max",
        type=parse_size,
        default=64 << 20,
        metavar="MAX",
        help="largest (64M)",
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
        type=_dtype,
        default="float32",
        metavar="DTYPE",
        help=" ".join(DTYPES),
    )
    add(
        "-o",
        dest="op",
        type=_one_of("op", UFUNCS),
        default="sum",
        metavar="OP",
        help=" ".join(UFUNCS),
    )
    add(
        "-r", dest="root", type=_at_least(0), default=0, metavar="ROOT", help="root (0)"
    )
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
        "--shapes",
        type=read_shapes,
        metavar="MODEL|FILE",
        help="the arrays of all_reduce_many and broadcast_many: gradients of a "
        "model, "
        f"{' '.join(MODELS)} ({MODELS[0]}), or of a JSON file such as "
        "[[64, 3, 7, 7], [64]]",
    )
    add(
        "--device",
        choices=DEVICES,
        default=HOST,
        help="where the arrays are: cpu (default), or cuda, in the memory of GPUs",
    )
    forms = parser.add_argument_group("registered arrays, of ours only")
    forms.add_argument(
        "--registered",
        action="store_true",
        help="arrays that the ranks of a host share; lists of arrays in packs",
    )
    forms.add_argument(
        "--result",
        choices=RESULTS,
        default=RESULTS[0],
        help="each rank's own (default), or one copy shared by the host",
    )
    forms.add_argument(
        "--touch",
        action="store_true",
        help="one more row, where every rank reads the whole shared result in the time",
    )
    add(
        "--overlap",
        action="store_true",
        help="how much of the call hides behind a computation, as in OSU's tables",
    )
    add(
        "--format",
        type=_one_of("format", FORMATS),
        metavar="FORMAT",
        help=f"{' '.join(FORMATS)}; with --overlap osu or json",
    )
    add("--json", metavar="FILE", help="also write every figure to FILE")
    return parser


def algorithms_of(collective: str, device: str = HOST) -> tuple[str, ...]:
    """Return the algorithms that can be compared; some collectives have but one."""
    case = cases_on(device)[collective]
    known = collectives.ALGORITHMS.get(case.algorithms or collective, ("auto",))
    ways = () if device == HOST else DEVICE_WAYS
    return (case.baseline, *case.by_hand, *known, *ways)


def parse_size(text: str) -> int:
    """Read a number of bytes with an optional suffix K, M or G (powers of 1024)."""
    found = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip().upper(), re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; wanted bytes such as 512, 64K, 16M or 1G"
        )
    return int(found[1]) * KIB[found[2]]


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


def _dtype(text: str) -> str:
    """Return NumPy's name of a dtype, after making sure that NumPy knows it."""
    name = DTYPES[_one_of("dtype", DTYPES)(text)]
    try:
        if name == "bfloat16":
            import_module("ml_dtypes")  # which tells NumPy
    except ImportError:
        raise argparse.ArgumentTypeError(
            f"dtype {name} needs the package ml_dtypes"
        ) from None
    return name


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
