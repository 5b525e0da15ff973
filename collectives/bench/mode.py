"""Whether two ranks of a host share a cache: it changes from run to run, and decides.

A line that one core has written is handed to another core through the last-level cache
if they share one, and across the chip if they do not: for calls through shared memory
that is two to four times slower. So it is measured before and after everything else,
between the first two ranks of the first host:

- the hand-over: how long until one sees a word that the other has written;
- the window: how fast one reads what the other has just written, and writes it again.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.communicator import Communicator

__all__ = ["Mode", "probe", "tell"]

WINDOW_BYTES = 1 << 19
LINE_BYTES = 128
ROUNDS, HAND_OVERS, PASSES = 10, 20, 4
SPINS = 1 << 12  # then by patient polling: both ranks may have one core

# On EPYC a hand-over takes 0.35-0.65 us inside a chiplet, 0.8-0.95 us between two.
SHARED_US, ONE_CORE_US = 0.7, 10.0


class Mode(NamedTuple):
    """Microseconds a hand-over, and GB/s (1e9) through a window."""

    hand_over_us: float
    window_gbps: float

    def __str__(self) -> str:
        """Say it in words."""
        where = "last-level cache not shared"
        if self.hand_over_us < SHARED_US:
            where = "last-level cache shared"
        elif self.hand_over_us > ONE_CORE_US:
            where = "no core each"
        figures = f"{self.hand_over_us:.2f} us, window {self.window_gbps:.1f} GB/s"
        return f"hand-over {figures}, {where}"


def probe(comm: Communicator) -> Mode | None:
    """Measure now; None where the first host has no two ranks that share memory.

    Collective; the same on every rank.
    """
    ranks = [rank for rank, host in enumerate(comm.topology.host_of) if host == 0][:2]
    arena = comm._group.arena
    if len(ranks) < 2 or not all(comm.all_gather_object(arena is not None)):
        return None
    assert arena is not None
    nbytes = WINDOW_BYTES + 2 * LINE_BYTES
    mine = -1
    if comm.rank == ranks[0]:
        with suppress(MemoryError):
            mine = arena.carve(nbytes)
    place = comm.broadcast_object(mine, ranks[0])
    if place < 0:
        return None
    found = None
    if comm.rank in ranks:
        pair = Pair(comm, arena.view(place, nbytes), comm.rank == ranks[0])
        found = pair.measure()
        pair.close()
    agreed: Mode = comm.broadcast_object(found, ranks[0])
    if mine >= 0:
        arena.release(mine)
    return agreed


class Pair:
    """One of two ranks that hand a window to and fro; `first` has it at first."""

    def __init__(self, comm: Communicator, memory: memoryview, first: bool) -> None:
        """Use `memory`: the window, then a line for each of the two."""
        self._comm = comm
        self._first = first
        self._window = memory[:WINDOW_BYTES]
        self._words = memory[WINDOW_BYTES:].cast("q")
        self._mine, self._theirs = (0, LINE_BYTES // 8)[:: 1 if first else -1]
        self._turn = 0

    def measure(self) -> Mode:
        """Return what was found; of the first rank, the other's says nothing."""
        window: NDArray[np.uint8] = np.frombuffer(self._window, np.uint8)
        private = np.ones_like(window)
        hand_over_s = min(self._round() for _ in range(ROUNDS)) / (2 * HAND_OVERS)
        pass_s = min(self._pass(window, private) for _ in range(PASSES))
        return Mode(hand_over_s * 1e6, 2 * WINDOW_BYTES / pass_s / 1e9)

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._window.release()

    def _round(self) -> float:
        start = time.perf_counter()
        for _ in range(HAND_OVERS):
            self._swap()
        return time.perf_counter() - start

    def _pass(self, window: NDArray[np.uint8], private: NDArray[np.uint8]) -> float:
        """Each writes the window and the other one reads it."""
        start = time.perf_counter()
        if self._first:
            window[:] = private
            self._swap()
            private[:] = window
        else:
            self._turn += 1
            self._take()
            private[:] = window
            window[:] = private
            self._words[self._mine] = self._turn
        return time.perf_counter() - start

    def _swap(self) -> None:
        """Hand over and wait until it comes back; the other way round on the second."""
        self._turn += 1
        if self._first:
            self._words[self._mine] = self._turn
            self._take()
        else:
            self._take()
            self._words[self._mine] = self._turn

    def _take(self) -> None:
        words, theirs, turn = self._words, self._theirs, self._turn
        for _ in range(SPINS):
            if words[theirs] == turn:
                return
        timeout_s = self._comm.options.timeout_s
        self._comm._group.wait(lambda: words[theirs] == turn, timeout_s)


def tell(comm: Communicator) -> str:
    """Return how memory is at the moment, in words. Collective."""
    return str(probe(comm) or "no two ranks of the first host share any")
