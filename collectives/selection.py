"""Which algorithm a call gets, and why.

An explicit argument wins, then the communicator's option (`RINGFOLD_ALGORITHM`), then
`auto`: the thresholds below. Every rank decides for itself from facts that are the same
everywhere; the choice is part of the descriptor, so that a difference would be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectives.algorithms import ALGORITHMS, AUTO, NATIVE, TABLE, native
from collectives.ending import say
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.group import Group
from collectives.kernels import Kernel
from collectives.options import Options

Ranges = tuple[tuple[int, str], ...]
"""`(from how many bytes on, algorithm)`, ascending."""

# Measured on 2 cores with `ringfold bench` on MPICH, Open MPI and Intel MPI; see
# docs/developers.md. What is not named here is native where that is eligible.
WITH_NATIVE: dict[str, Ranges] = {
    "all_reduce": ((0, NATIVE), (8 << 20, "ring")),
}
ACROSS_HOSTS: dict[str, Ranges] = {
    # Small ones travel with the agreement; a native call would need a round before it.
    "all_reduce": (
        (0, "recursive_doubling"),
        ((64 << 10) + 1, NATIVE),
        (8 << 20, "ring"),
    ),
}
WITHOUT_NATIVE: dict[str, Ranges] = {
    "all_reduce": ((0, "recursive_doubling"), (64 << 10, "ring")),
    "reduce": ((0, "tree"), (64 << 10, "ring")),
    "reduce_scatter": ((0, "circulant"), (64 << 10, "ring")),
    "scan": ((0, "chain"),),
    "exclusive_scan": ((0, "chain"),),
    "broadcast": ((0, "tree"), (256 << 10, "chain")),
    "all_gather": ((0, "circulant"), (64 << 10, "ring")),
    "gather": ((0, "tree"), (64 << 10, "linear")),
    "scatter": ((0, "tree"), (64 << 10, "linear")),
    "all_to_all": ((0, "pairwise"),),
}
IN_ORDER: dict[str, Ranges] = {
    "all_reduce": ((0, "chain"), (16 << 10, "pairwise")),
    "reduce": ((0, "chain"),),
    "reduce_scatter": ((0, "pairwise"),),
    "scan": ((0, "chain"),),
    "exclusive_scan": ((0, "chain"),),
}
# Sums of narrow floats are float32. Rather than to cast everything before and after,
# from this many bytes of float32 on what is given and what comes out travels as it is.
NARROW_FROM_BYTES = 64 << 10
NARROW = {"all_reduce": "exchange", "reduce_scatter": "exchange"}

_logged: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Choice:
    """An algorithm and the reason why it was taken."""

    algorithm: str
    reason: str


def choose(
    collective: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    options: Options,
    requested: str | None,
) -> Choice:
    """Choose the algorithm of a call.

    Args:
        collective: a key of `ALGORITHMS`.
        nbytes: size of the whole array as it travels.
        kernel: how it is reduced; None for calls that only move.
        group: the ranks.
        options: the communicator's.
        requested: a name, or None for what the options say.

    Raises:
        InvalidArgumentError: no such algorithm for this collective.
        UnsupportedError: the algorithm cannot do it here.
    """
    name = wanted(collective, options, requested)
    if name == AUTO:
        choice = _automatic(collective, nbytes, kernel, group, options)
    else:
        refusal = _refusal(collective, name, nbytes, kernel, group, options)
        if refusal:
            raise UnsupportedError(f"{collective} by {name}: {refusal}")
        choice = Choice(name, "asked for")
    if options.log == "info" and group.rank == 0:
        _log(collective, choice)
    return choice


def wanted(collective: str, options: Options, requested: str | None) -> str:
    """Return the name that is asked for, by the caller or by the options.

    An option is for the collectives that have that algorithm; the others get `auto`.

    Raises:
        InvalidArgumentError: no such algorithm for this collective.
    """
    known = ALGORITHMS[collective]
    if requested is None:
        return options.algorithm if options.algorithm in known else AUTO
    if requested not in known:
        raise InvalidArgumentError(
            f"unknown algorithm {requested!r} for {collective}; "
            f"known: {' '.join(known)}"
        )
    return requested


def check_option(options: Options) -> None:
    """Raise `InvalidArgumentError` if no collective has the option's algorithm."""
    known = dict.fromkeys(name for names in ALGORITHMS.values() for name in names)
    if options.algorithm not in known:
        raise InvalidArgumentError(
            f"unknown algorithm {options.algorithm!r} in the options; "
            f"known: {' '.join(known)}"
        )


def _refusal(
    collective: str,
    name: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    options: Options,
) -> str:
    """Return why an algorithm is not eligible; empty when it is."""
    row = TABLE[collective][name]
    if kernel is not None and not row.in_order:
        if options.deterministic:
            return (
                "deterministic needs an algorithm that combines in the order of ranks"
            )
        if kernel.in_order:
            return "a function as op needs an algorithm that combines in rank order"
    if row.needs_mpi:
        if group.native is None:
            return "this world runs without MPI"
        if nbytes > options.mpi_limit_bytes:
            return (
                f"{nbytes} bytes; one MPI call gets {options.mpi_limit_bytes} at most"
            )
        if kernel is not None:
            return native.refusal(kernel)
    return ""


def _automatic(
    collective: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    options: Options,
) -> Choice:
    size = f"{nbytes} bytes"
    if kernel is not None and (options.deterministic or kernel.in_order):
        why = "deterministic" if options.deterministic else "op is a function"
        return Choice(_in(IN_ORDER[collective], nbytes), f"{size}, {why}")
    narrow = kernel is not None and kernel.work_dtype != kernel.result_dtype
    if narrow and collective in NARROW and nbytes >= NARROW_FROM_BYTES:
        return Choice(NARROW[collective], f"{size} as float32, which stays local")
    refusal = _refusal(collective, NATIVE, nbytes, kernel, group, options)
    if refusal:
        name = _in(WITHOUT_NATIVE[collective], nbytes)
        return Choice(name, f"{size}; not native: {refusal}")
    ranges = WITH_NATIVE if group.one_board else ACROSS_HOSTS
    return Choice(_in(ranges.get(collective, ((0, NATIVE),)), nbytes), size)


def _in(ranges: Ranges, nbytes: int) -> str:
    """Return the algorithm of the range that a size falls into."""
    return [name for start, name in ranges if nbytes >= start][-1]


def _log(collective: str, choice: Choice) -> None:
    """Print the first use of each algorithm."""
    key = (collective, choice.algorithm)
    if key not in _logged:
        _logged.add(key)
        say(f"ringfold: {collective} by {choice.algorithm}: {choice.reason}")
