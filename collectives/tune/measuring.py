"""Timing of anything that all ranks do at once, and of collectives by several ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from collectives.bench import buffers, measure
from collectives.bench.case import IN_PLACE, ORDINARY, OUT_OF_PLACE, Setup
from collectives.bench.cases import CASES
from collectives.bench.measure import Batches, Run
from collectives.communicator import Communicator

DTYPE, OP = "float32", "sum"
BATCHES = 20  # short ones: where others use the machine, some fall into a gap
LONG_US = 2e4  # a longer call is made thrice, and nothing larger is measured
FEWEST = 5  # batches, however long they take
WARM_UPS = 9  # of those that race, each has run twice by then


def best_us(comm: Communicator, call: Callable[[], object], budget_s: float) -> float:
    """Return the microseconds of a call on the slowest rank, at best. Collective."""
    once = min(_batch_us(comm, call, 1) for _ in range(3))
    slowest = max(comm.all_gather_object(once))
    if slowest > LONG_US:
        return float(slowest)
    calls = int(min(200, max(1, budget_s * 1e6 / BATCHES / slowest)))
    batches = int(min(BATCHES, max(FEWEST, budget_s * 1e6 / calls / slowest)))
    times = [_batch_us(comm, call, calls) for _ in range(batches)]
    everyones = np.array(comm.all_gather_object(times))
    return float(everyones.max(axis=0).min())


def _batch_us(comm: Communicator, call: Callable[[], object], calls: int) -> float:
    comm.barrier()
    start = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - start) / calls * 1e6


class Course:
    """Memory for calls of up to so many bytes, and the calls bound to it."""

    def __init__(self, comm: Communicator, most_bytes: int) -> None:
        """Get the memory as the benchmark does."""
        self.comm = comm
        room = max(most_bytes, 1 << 16)
        self._memory = buffers.allocate(room, DTYPE), buffers.allocate(room, DTYPE)

    def run(self, collective: str, algorithm: str, nbytes: int) -> Run:
        """Return a call ready to be timed, in place where that exists."""
        case, comm = CASES[collective], self.comm
        runners = case.staged(algorithm, ORDINARY)
        place = IN_PLACE if IN_PLACE in runners else OUT_OF_PLACE
        size = case.size(nbytes, 4, comm.size)
        setup = Setup(comm, OP, 0, algorithm, place)
        views = case.views(self._memory, size, place, comm.rank)
        return Run(case, setup, DTYPE, *views, runners[place](setup, *views))

    def times_us(
        self, collective: str, nbytes: int, names: Sequence[str], budget_s: float
    ) -> dict[str, NDArray[np.float64]]:
        """Return what a call takes, by algorithm and repetition, on the slowest rank.

        The algorithms take turns, in batches of calls. Collective.
        """
        comm, runs = self.comm, [self.run(collective, n, nbytes) for n in names]
        for name, run in zip(names, runs, strict=True):
            measure.batch(comm, run, WARM_UPS if name == "auto" else 1)
        once = sum(measure.batch(comm, run, 1) for run in runs)
        once = max(comm.all_gather_object(once))
        calls = int(min(50, max(1, budget_s / BATCHES / once)))
        fewest = FEWEST if once < 1 else 2
        rounds = int(min(3 * BATCHES, max(fewest, budget_s / calls / once)))
        seconds = measure.alternate(comm, runs, Batches(calls, rounds))
        slowest = [by_rank.max(axis=0) * 1e6 for by_rank in seconds]
        return dict(zip(names, slowest, strict=True))
