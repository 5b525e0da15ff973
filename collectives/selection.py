"""Which algorithm a call gets, and why.

An explicit argument wins, then the communicator's option (`RINGFOLD_ALGORITHM`), then
`auto`: the thresholds below. Every rank decides for itself from facts that are the same
everywhere; the choice is part of the descriptor, so that a difference would be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectives.algorithms import (
    ALGORITHMS,
    AUTO,
    HIERARCHICAL,
    NATIVE,
    SHARED,
    TABLE,
    native,
)
from collectives.ending import say
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.group import Group
from collectives.kernels import Kernel
from collectives.options import Options
from collectives.window import MAIL_BYTES

Ranges = tuple[tuple[int, str], ...]
"""`(from how many bytes on, algorithms)`, ascending. Where several are named they race:
see racing.py. Those that do not combine in the order of ranks take part only where that
makes no difference: two ranks, integers, or nothing to combine."""

# Measured on 2 cores with `ringfold bench` on MPICH, Open MPI and Intel MPI; see
# docs/developers.md.
ONE_HOST: dict[str, Ranges] = {
    "all_reduce": ((0, "shared"), (MAIL_BYTES + 1, "shared direct ring native")),
    "reduce": ((0, "shared"), (MAIL_BYTES + 1, "shared direct native")),
    "reduce_scatter": ((0, "shared"), (MAIL_BYTES + 1, "shared direct native")),
    "scan": ((0, "shared"),),
    "exclusive_scan": ((0, "shared"),),
    "broadcast": ((0, "shared"), (32 << 10, "shared direct native")),
    "all_gather": ((0, "shared"), (32 << 10, "shared direct native")),
    "gather": ((0, "shared"), (32 << 10, "shared native")),
    "scatter": ((0, "shared"), (32 << 10, "shared native")),
    "all_to_all": ((0, "shared"), (32 << 10, "shared native")),
}
# Where an MPI's own is faster at sizes that are too small to race, or where it cannot
# take part; by the MPI, and by whether there are more than two ranks.
QUICK_NATIVE: dict[tuple[str, bool], dict[str, Ranges]] = {
    ("Intel MPI", False): {"all_reduce": ((32 << 10, NATIVE),)},
    ("Intel MPI", True): {
        "all_reduce": (
            (32 << 10, NATIVE),
            (MAIL_BYTES + 1, NATIVE),
            (2 << 20, "shared direct ring native"),
        )
    },
}
WITH_NATIVE: dict[str, Ranges] = {
    "all_reduce": ((0, NATIVE), (8 << 20, "ring")),
}
ACROSS_HOSTS: dict[str, Ranges] = {
    # Small ones travel with the agreement; a native call would need a round before it.
    "all_reduce": (
        (0, "recursive_doubling"),
        ((64 << 10) + 1, HIERARCHICAL),
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
# For one rank, which only has to copy.
ALONE = {collective: ranges[0][1] for collective, ranges in WITHOUT_NATIVE.items()}
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
    rivals: tuple[str, ...] = ()
    """Where several race: all of them. Which one makes the next call is agreed then."""


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
    if row.needs_window and group.size > 1 and not group.one_board:
        return "the ranks do not all share one memory"
    if (row.needs_window or row.host_windows) and group.size > 1 and group.no_window:
        return group.no_window
    if row.needs_permission and group.not_direct:
        return group.not_direct
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
    in_order = kernel is not None and (options.deterministic or kernel.in_order)
    if in_order:
        size += ", deterministic" if options.deterministic else ", op is a function"
    here = _on_one_host(collective, nbytes, kernel, group, options)
    if here:
        if len(here) == 1:
            return Choice(here[0], f"{size}, on one host")
        heat = group.race.heat(collective, nbytes, here)
        times = [f"{name} {s * 1e6:.0f} us" for name, s in heat.times_s().items()]
        reason = f"{size}, on one host: {', '.join(times) or 'not measured yet'}"
        return Choice(here[heat.best()[0]], reason, here)
    if in_order:
        return Choice(_in(IN_ORDER[collective], nbytes), size)
    narrow = kernel is not None and _narrow(kernel) and collective in NARROW
    if narrow and nbytes >= NARROW_FROM_BYTES:
        return Choice(NARROW[collective], f"{size} as float32, which stays local")
    refusal = _refusal(collective, NATIVE, nbytes, kernel, group, options)
    if refusal:
        name = _in(WITHOUT_NATIVE[collective], nbytes)
        return Choice(name, f"{size}; not native: {refusal}")
    ranges = WITH_NATIVE if group.one_board else ACROSS_HOSTS
    name = _in(ranges.get(collective, ((0, NATIVE),)), nbytes)
    if _refusal(collective, name, nbytes, kernel, group, options):
        name = _in(WITH_NATIVE.get(collective, ((0, NATIVE),)), nbytes)
    return Choice(name, size)


def _on_one_host(
    collective: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    options: Options,
) -> tuple[str, ...]:
    """Return the algorithms for ranks that share memory; none where they do not."""
    if group.size == 1 or _refusal(collective, SHARED, nbytes, kernel, group, options):
        return ()
    ranges = dict(ONE_HOST[collective])
    mpi, native_too = group.topology.mpi, not (kernel is not None and _narrow(kernel))
    native_too &= not _refusal(collective, NATIVE, nbytes, kernel, group, options)
    if native_too and mpi is not None:
        quick = QUICK_NATIVE.get((mpi.vendor, group.size > 2), {})
        ranges |= dict(quick.get(collective, ()))
    names = _in(tuple(sorted(ranges.items())), nbytes).split()
    any_order = native_too and (kernel is None or group.size == 2 or _exact(kernel))
    return tuple(
        name
        for name in names
        if (any_order or TABLE[collective][name].in_order or names == [NATIVE])
        and not _refusal(collective, name, nbytes, kernel, group, options)
    )


def _exact(kernel: Kernel) -> bool:
    """Tell whether the order in which the ranks are combined makes no difference."""
    return kernel.work_dtype.kind in "biu" and not kernel.in_order


def _narrow(kernel: Kernel) -> bool:
    """Tell whether something is combined in a wider dtype than it has."""
    return kernel.work_dtype != kernel.result_dtype


def _in(ranges: Ranges, nbytes: int) -> str:
    """Return the algorithm of the range that a size falls into."""
    return [name for start, name in ranges if nbytes >= start][-1]


def _log(collective: str, choice: Choice) -> None:
    """Print the first use of each algorithm."""
    key = (collective, choice.algorithm)
    if key not in _logged:
        _logged.add(key)
        say(f"ringfold: {collective} by {choice.algorithm}: {choice.reason}")
