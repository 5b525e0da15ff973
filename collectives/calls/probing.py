"""Measuring what memory does between the ranks of a host at the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from collectives.algorithms import AUTO, SHARED
from collectives.algorithms.rounds import Rounds
from collectives.board import FIRST, SECOND, TARGET
from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.plans import Planner

TIMES = 6
HAND_OVERS = 50
SPLIT = 2.5  # times as slow as private memory: a dirty line crosses between chips


@dataclass(frozen=True)
class Mode:
    """How fast the slowest rank of a host works in its own memory and in shared one."""

    hand_over_us: float
    """Microseconds from the last rank's arrival until all know."""
    private_gbs: float
    """GB/s of copies between arrays of one's own, all ranks at once."""
    window_gbs: float
    """GB/s of copies into and out of the window."""

    @property
    def shares_cache(self) -> bool:
        """Whether what one rank has written reaches another through a common cache."""
        return self.private_gbs < SPLIT * self.window_gbs

    def __str__(self) -> str:
        """Return the figures and what they mean."""
        caches = "one cache" if self.shares_cache else "split caches"
        return (
            f"{caches}: hand-over {self.hand_over_us:.2f} us, window "
            f"{self.window_gbs:.1f} GB/s, private memory {self.private_gbs:.1f} GB/s"
        )


def probe(planner: Planner) -> Call:
    """Measure it, in 1 or 2 ms; None where the ranks have no window in common."""
    group, choice = planner.group, planner.choose("broadcast", 8, None, AUTO)

    def run() -> Mode | None:
        return _measure(planner) if group.one_board and group.window else None

    windowed = choice.algorithm == SHARED and group.window is None
    return Call(Descriptor("probe"), run, windowed=windowed)


def _measure(planner: Planner) -> Mode:
    nothing = np.empty(0)
    rounds = Rounds(planner.task((), nothing, nothing), divided=False)
    mine = rounds.slots(0)[rounds.rank]
    theirs = rounds.slots(0)[(rounds.rank + 1) % rounds.size]
    source, between, target = (np.ones(mine.size) for _ in range(3))

    def through_window() -> None:
        mine[:] = source
        rounds.hand_over()
        target[:] = theirs
        rounds.hand_over()

    def alone() -> None:
        between[:] = source
        rounds.hand_over()
        target[:] = between
        rounds.hand_over()

    def hand_over() -> None:
        for _ in range(HAND_OVERS):
            rounds.hand_over()

    steps = (_best_ns(step) for step in (hand_over, alone, through_window))
    for word, best in zip((FIRST, SECOND, TARGET), steps, strict=True):
        rounds.board.write(word, best)
    rounds.hand_over()
    waiting, private, shared = (
        max(rounds.board.read(word)) for word in (FIRST, SECOND, TARGET)
    )
    return Mode(
        hand_over_us=waiting / HAND_OVERS / 1e3,
        private_gbs=2 * mine.nbytes / private,
        window_gbs=2 * mine.nbytes / shared,
    )


def _best_ns(step: Callable[[], None]) -> int:
    """Return the nanoseconds that a step takes at best."""
    times = []
    for _ in range(TIMES):
        start = perf_counter()
        step()
        times.append(perf_counter() - start)
    return round(min(times) * 1e9)
