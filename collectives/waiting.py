"""Waiting without hanging: spin, yield, sleep, and look after the peers.

Everything in Ringfold that waits for another rank waits here. A wait goes through
three phases, because the right way to wait depends on how long it will take:

1. *spin*: for a hand-over between cores, which takes about a microsecond. Skipped
   where there are more ranks than cores: there the peer needs this very core.
2. *yield*: give the core away and come back; the system decides.
3. *sleep*: the peer is busy with something else; stop burning its cores.

Only time in which we polled counts against the deadline. A suspended job, a debugger
or a closed lid is a gap between two polls, and a gap counts as `GAP_S` at most.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Mapping

SPINS = 2000
YIELDS = 100
YIELD_S = 0.01
SLEEP_S = (0.00005, 0.0005)
GAP_S = 1.0
HEALTH_S = 0.05

yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


class TimedOut(Exception):
    """A wait passed its deadline; verdicts.py turns it into what users see."""

    def __init__(self, gave_up: int = -1) -> None:
        """Remember whose deadline it was, where it was not this rank's own."""
        super().__init__()
        self.gave_up = gave_up


class PeerLost(Exception):
    """A peer died or left; carries its rank and what happened to it."""

    def __init__(self, rank: int, what: str) -> None:
        """Remember who was lost and how."""
        super().__init__(f"rank {rank} {what}")
        self.rank = rank
        self.what = what


def wait_until(
    ready: Callable[[], bool],
    *,
    timeout_s: float,
    spins: int = SPINS,
    health: Callable[[float], None] | None = None,
) -> None:
    """Return as soon as `ready()` is true.

    Args:
        ready: polled; must be cheap and must not block.
        timeout_s: seconds of polling before `TimedOut`.
        spins: polls before the first yield; 0 with more ranks than cores.
        health: called every `HEALTH_S` with the seconds waited so far; raises
            `PeerLost` when waiting on makes no sense.

    Raises:
        TimedOut: the deadline passed.
    """
    for _ in range(spins):
        if ready():
            return
    waited = 0.0
    last = time.monotonic()
    next_health = HEALTH_S
    pause, longest = SLEEP_S
    while not ready():
        if waited < YIELD_S:
            yield_core()
        else:
            time.sleep(pause)
            pause = min(2 * pause, longest)
        now = time.monotonic()
        waited += min(now - last, GAP_S)
        last = now
        if waited >= timeout_s:
            raise TimedOut
        if health is not None and waited >= next_health:
            health(waited)
            next_health = waited + HEALTH_S


class Liveness:
    """Tells which processes of this host are dead, through one pidfd each.

    A pidfd stays bound to its process, so that a recycled pid cannot fool it. Where the
    system has no pidfd, or a pid is of another namespace, nothing is watched.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        """Watch the peers in `{rank: pid}`."""
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._lock = threading.Lock()
        self._ranks: dict[int, int] = {}
        self._number: Mapping[int, int] | None = None
        if self._poll is None or not hasattr(os, "pidfd_open"):
            return
        for rank, pid in pids.items():
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                continue
            self._ranks[descriptor] = rank
            self._poll.register(descriptor, select.POLLIN)

    def dead(self) -> list[int]:
        """Return the ranks whose processes have ended."""
        if not self._ranks or self._poll is None:
            return []
        with self._lock:  # a poll object is for one thread at a time
            dead = [self._ranks[descriptor] for descriptor, _ in self._poll.poll(0)]
        if self._number is None:
            return sorted(dead)
        return sorted(self._number[rank] for rank in dead if rank in self._number)

    def renumbered(self, number: Mapping[int, int]) -> Liveness:
        """Return a view for a group in which rank r has number[r]; not to be closed."""
        view = Liveness({})
        view._poll, view._ranks, view._lock = self._poll, self._ranks, self._lock
        view._number = number
        return view

    def close(self) -> None:
        """Stop watching; may be called twice."""
        ranks, self._ranks = self._ranks, {}
        for descriptor in ranks:
            os.close(descriptor)
