"""Which algorithm a call gets, and why.

An explicit argument wins, then the communicator's option (`RINGFOLD_ALGORITHM`: a name,
or ranges of sizes), then what a table says of such a place (tables/), then the lowest
price (costs.py). Every rank decides for itself from facts that are the same everywhere;
the choice is part of the descriptor, so that a difference would be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from collectives.algorithms import ALGORITHMS, AUTO, NATIVE, TABLE
from collectives.costs import Move, whole
from collectives.eligibility import able, can_race, narrow, refusal
from collectives.ending import say
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.gpu.facts import DEVICE_WAYS, STAGED
from collectives.group import Group
from collectives.kernels import Kernel
from collectives.moves import moves
from collectives.options import Options
from collectives.ranges import OPEN, at, names, parse, written

# Sums of narrow floats are float32. Rather than to cast everything before and after,
# from this many bytes of float32 on what is given and what comes out travels as it is.
NARROW_FROM_BYTES = 64 << 10
NARROW = {"all_reduce": "exchange", "reduce_scatter": "exchange"}
# Until `ringfold tune` has measured it, an MPI's own is taken for as good as the best
# of ours by messages: on one host better, since no Python lies between its messages;
# between hosts worse, since it may know less of them (2 hosts, 16 MiB, 1 Gbit/s: 1.4
# times the wire's time with MPICH, 14 times with Open MPI).
NATIVE_GUESS = {False: 0.8, True: 1.3}

# What a rank that is alone uses, which only has to copy.
ALONE = {
    "all_reduce": "recursive_doubling",
    "reduce": "tree",
    "reduce_scatter": "circulant",
    "scan": "chain",
    "exclusive_scan": "chain",
    "broadcast": "tree",
    "all_gather": "circulant",
    "gather": "tree",
    "scatter": "tree",
    "all_to_all": "pairwise",
}

_logged: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Choice:
    """An algorithm and the reason why it was taken."""

    algorithm: str
    reason: str
    rivals: tuple[str, ...] = ()
    """Where several race: all of them. Which one makes the next call is agreed then."""
    predicted_us: float | None = None
    """What a call is thought to take, in microseconds; only `comm.choose` tells."""
    alternatives: tuple[tuple[str, float], ...] = ()
    """All that could make the call, with their times, the fastest first; as above."""


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
    name = wanted(collective, options, requested, nbytes)
    if name == AUTO:
        choice = _automatic(collective, nbytes, kernel, group, options)
    else:
        why_not = refusal(collective, name, nbytes, kernel, group, options)
        if why_not:
            raise UnsupportedError(f"{collective} by {name}: {why_not}")
        choice = Choice(name, "asked for")
    if options.log == "info" and group.rank == 0:
        note_first_use(collective, choice)
    return choice


def explained(
    choice: Choice,
    collective: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    options: Options,
) -> Choice:
    """Return the choice with what it and all others are thought to take.

    Those that race have been measured, by now or as soon as each has run; the others'
    times are prices.
    """
    among = able(collective, nbytes, kernel, group, options)
    prices = prices_us(collective, nbytes, group, (*among, choice.algorithm))
    if choice.rivals:
        heat = group.race.heat(collective, nbytes, choice.rivals)
        prices |= {name: s * 1e6 for name, s in heat.times_s().items()}
    prices = {name: round(us, 1) for name, us in prices.items()}
    ranked = sorted(prices.items(), key=lambda one: one[1])
    predicted = prices.get(choice.algorithm)
    return replace(choice, predicted_us=predicted, alternatives=tuple(ranked))


def wanted(
    collective: str, options: Options, requested: str | None, nbytes: int
) -> str:
    """Return the name that is asked for at a size; `auto` where none is.

    Raises:
        InvalidArgumentError: as in `asked`.
    """
    return at(parse(asked(collective, options, requested)), nbytes) or AUTO


def asked(collective: str, options: Options, requested: str | None) -> str:
    """Return the name, or the ranges, that the caller or the options ask for.

    An option is for the collectives that have that algorithm; the others get `auto`.

    Raises:
        InvalidArgumentError: no such algorithm for this collective.
    """
    known = ALGORITHMS[collective]
    if requested is None:
        own = tuple(
            (start, name if name in known else OPEN) for start, name in options.ranges
        )
        return options.algorithm if own == options.ranges else written(own) or AUTO
    unknown = {requested} - set(known)
    if isinstance(requested, str) and ":" in requested:
        unknown = names(parse(requested)) - set(known)
    if requested == STAGED:
        return AUTO  # by way of the host, where this array is already
    if unknown & set(DEVICE_WAYS):
        raise InvalidArgumentError(
            f"{collective} by {requested}: that moves arrays on GPUs, and this one "
            "lies on the host"
        )
    if unknown:
        raise InvalidArgumentError(
            f"unknown algorithm {unknown.pop()!r} for {collective}; "
            f"known: {' '.join(known)}"
        )
    return requested


def check_option(options: Options) -> None:
    """Raise `InvalidArgumentError` if no collective has the option's algorithm."""
    known = dict.fromkeys(name for names in ALGORITHMS.values() for name in names)
    unknown = sorted(names(options.ranges) - known.keys() - {*DEVICE_WAYS})
    if unknown:
        raise InvalidArgumentError(
            f"unknown algorithm {unknown[0]!r} in the options; known: {' '.join(known)}"
        )


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
    for table in group.tuning.tables:
        said = at(table.rules.get(collective, ((0, OPEN),)), nbytes)
        found = can_race(said, collective, nbytes, kernel, group, options)
        if len(found) == 1:
            return Choice(found[0], f"{size}; table for {table.name}")
        if found:
            heat = group.race.heat(collective, nbytes, found)
            times = [f"{name} {s * 1e6:.0f} us" for name, s in heat.times_s().items()]
            latest = ", ".join(times) or "not measured yet"
            reason = f"{size}; table for {table.name}: a race; {latest}"
            return Choice(found[heat.best()[0]], reason, found)
    stays = kernel is not None and narrow(kernel) and collective in NARROW
    if stays and not in_order and nbytes >= NARROW_FROM_BYTES:
        return Choice(NARROW[collective], f"{size} as float32, which stays local")
    among = able(collective, nbytes, kernel, group, options)
    prices = prices_us(collective, nbytes, group, among)
    best = min(prices, key=lambda name: prices[name])
    return Choice(best, f"{size}, lowest price: {prices[best]:.0f} us")


def prices_us(
    collective: str, nbytes: int, group: Group, among: tuple[str, ...]
) -> dict[str, float]:
    """Return what each of some algorithms is thought to take, in microseconds."""
    place, costs = group.tuning.place, group.tuning.costs
    prices: dict[str, float] = {}
    for name in among:
        measured = [Move(whole(collective, name), nbytes)]
        known = costs.knows(measured)
        found = measured if known else moves(collective, name, place, nbytes)
        if found is not None and costs.knows(found):
            prices[name] = costs.price_us(found)
    if NATIVE in among and NATIVE not in prices:
        rows = TABLE[collective]
        by_messages = [us for name, us in prices.items() if not rows[name].needs_window]
        guess = NATIVE_GUESS[place.hosts > 1]
        prices[NATIVE] = guess * min(by_messages, default=0.0)
    return prices


def note_first_use(collective: str, choice: Choice) -> None:
    """Print the first use of each algorithm."""
    key = (collective, choice.algorithm)
    if key not in _logged:
        _logged.add(key)
        say(f"ringfold: {collective} by {choice.algorithm}: {choice.reason}")
