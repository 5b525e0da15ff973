"""From curves to a table's rules: which algorithm for which sizes.

Prices decide where they are far apart. Where the two lowest are not, those that are
close are measured, by turns.
"""

from __future__ import annotations

import time

import numpy as np

from collectives import eligibility, ranges, selection
from collectives.algorithms import NATIVE, REDUCING, TABLE
from collectives.communicator import Communicator
from collectives.kernels import Kernel, kernel_for
from collectives.ranges import Ranges
from collectives.tables import default
from collectives.tune.measuring import DTYPE, LONG_US, OP, Course

SIZES = tuple(8 << 2 * power for power in range(12))  # 8 B to 32 MiB
CLOSE = 1.3
SURELY = 0.9  # what is usual stays, unless another is faster by so much
BUDGET_S = 0.04
# Ranks that share memory race above some size (racing.py): there one way is left to
# itself only if it is faster by so much, and no other may race with it.
CLEARLY = 0.8
RACE_FROM = 4 << 20  # there all race, whatever it was that tune met with


def rules(comm: Communicator, seconds: float) -> dict[str, Ranges]:
    """Return the rules for a place whose costs the group knows already. Collective.

    After so many seconds prices alone decide; collectives come in the order in which
    they matter.
    """
    course, until = Course(comm, max(SIZES)), time.perf_counter() + seconds
    return {name: _ranges(comm, course, name, until) for name in TABLE}


def _ranges(
    comm: Communicator, course: Course, collective: str, until: float
) -> Ranges:
    """Return the winners, each up to half way to the next size that was looked at.

    Where racing begins is not for a table to say.
    """
    kept: list[tuple[int, str]] = []
    racing_from = next((s for s, n in _usual(comm, collective) if "+" in n), 0)
    for size in SIZES:
        late = comm.broadcast_object(time.perf_counter() > until)
        name = _winner(comm, course, collective, size, late)
        start = size // 2 + 1 if kept else 0
        if size // 4 < racing_from <= size:
            start = racing_from
        if not kept or kept[-1][1] != name:
            kept.append((start, name))
    return tuple(kept)


def _winner(
    comm: Communicator, course: Course, collective: str, nbytes: int, late: bool
) -> str:
    """Return what the table shall say for a size."""
    kernel = kernel_for(OP, np.dtype(DTYPE)) if collective in REDUCING else None
    racing = _racing(comm, collective, nbytes)
    able = _able(comm, collective, nbytes, kernel)
    free = kernel is None or comm.size == 2
    if racing and (free or nbytes >= RACE_FROM or late):
        return racing
    if racing:  # sums of floats: only some may race, and the MPI's own may not
        rivals = [name for name in racing.split("+") if name in able]
        times = _times(comm, course, collective, nbytes, rivals)
        others = [us for name, us in times.items() if TABLE[collective][name].in_order]
        alone = NATIVE in times and times[NATIVE] < CLEARLY * min(others, default=0)
        return NATIVE if alone else racing
    prices = selection.prices_us(collective, nbytes, comm._group, tuple(able))
    usual = ranges.at(_usual(comm, collective), nbytes)
    least = min(prices.values())
    close = [name for name in able if name in prices and prices[name] <= CLOSE * least]
    close += [usual] if usual in able and usual not in close else []
    if len(close) == 1:
        return close[0]
    if late and usual:
        return usual
    if late or least > LONG_US:
        return min(close, key=lambda name: prices.get(name, 2 * least))
    times = _times(comm, course, collective, nbytes, close)
    best = min(times, key=lambda name: times[name])
    return best if times[best] < SURELY * times.get(usual, times[best] * 2) else usual


def _racing(comm: Communicator, collective: str, nbytes: int) -> str:
    """Return those that race at this size wherever ranks share memory; or nothing."""
    said = ranges.at(_usual(comm, collective), nbytes)
    return said if "+" in said else ""


def _usual(comm: Communicator, collective: str) -> Ranges:
    """Return what holds wherever ranks share memory; nothing where they do not."""
    if not comm._group.one_board or comm._group.no_window:
        return ((0, ranges.OPEN),)
    return next(table for table in default() if table.hosts == 1).rules[collective]


def _able(
    comm: Communicator, collective: str, nbytes: int, kernel: Kernel | None
) -> list[str]:
    """Return what can make such a call."""
    group, options = comm._group, comm.options
    return list(eligibility.able(collective, nbytes, kernel, group, options))


def _times(
    comm: Communicator, course: Course, collective: str, nbytes: int, names: list[str]
) -> dict[str, float]:
    found = course.times_us(collective, nbytes, names, BUDGET_S)
    everyones = comm.broadcast_object({n: float(t.min()) for n, t in found.items()})
    times: dict[str, float] = everyones
    return times
