"""Timing and checking of calls, apart from what is called.

A repetition is a batch of calls between two barriers; its time is that of the slowest
rank over the calls in the batch. Within one size the algorithms alternate batch by
batch, so that whatever disturbs the machine disturbs all of them. Every rank rewrites
its input, as programs do, outside the time: before each batch, and before each call of
one whose calls leave the input as it was. Results are checked in a separate pass on
other data.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from random import Random
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from collectives.bench import device, patterns
from collectives.bench.case import IN_PLACE, Call, Case, Setup, Staged
from collectives.communicator import Communicator

__all__ = ["Batches", "Run", "Timed", "alternate", "check", "plan"]

# A size takes about this long, all algorithms and places together: then six sizes and
# three algorithms take some ten seconds, and 64 MiB still gets its repetitions.
BUDGET_S = 1.5
CALLS = (2, 20)
REPETITIONS = (5, 100)


class Batches(NamedTuple):
    """How often to call: `calls` in a batch, `repetitions` batches."""

    calls: int
    repetitions: int


class Timed(Protocol):
    """What is called again and again. A call is `messages` messages in a row."""

    @property
    def call(self) -> Callable[[], object]:
        """What is timed."""

    @property
    def messages(self) -> int:
        """Times are those of one message."""

    @property
    def afresh(self) -> bool:
        """Whether the input is written before every call, and not once a batch."""

    def rewrite(self) -> None:
        """Write the input."""


@dataclass(frozen=True)
class Run:
    """One algorithm in one place at one size, ready to be called on this rank."""

    case: Case
    setup: Setup
    dtype: str
    send: NDArray[Any]
    receive: NDArray[Any]
    stages: Staged

    @property
    def call(self) -> Call:
        """What is timed."""
        return self.stages.call

    @property
    def op(self) -> str:
        """The op, or "none" where nothing is reduced."""
        return self.setup.op if self.case.reduces else "none"

    @property
    def messages(self) -> int:
        """The messages of a call."""
        return self.case.messages

    @property
    def afresh(self) -> bool:
        """Whether a call leaves its input as it was, or the next wants it elsewhere."""
        overwritten = self.case.overwrites and self.setup.place == IN_PLACE
        return self.case.sized and (not overwritten or self.stages.afresh)

    def rewrite(self) -> None:
        """Write the input that timed calls work on."""
        self.send.fill(patterns.steady(self.op))
        self.stages.before()
        device.settle(self.send)


def plan_calls(round_s: float) -> int:
    """Return the calls in a batch; `round_s` is the time of one call of every run."""
    return _between(CALLS, BUDGET_S / REPETITIONS[0] / max(round_s, 1e-9))


def plan_repetitions(batch_s: float) -> int:
    """Return the repetitions; `batch_s` is the time of one batch of every run."""
    return _between(REPETITIONS, BUDGET_S / max(batch_s, 1e-9))


def _between(bounds: tuple[int, int], value: float) -> int:
    low, high = bounds
    return int(min(max(value, low), high))


def plan(
    comm: Communicator,
    runs: Sequence[Timed],
    warmup: int,
    calls: int | None = None,
    repetitions: int | None = None,
) -> Batches:
    """Warm up and return the batches that fit the budget; numbers given stand.

    Collective, with the same result on every rank. What is not given is found by
    trial: one call of each run, then one batch. A single call tells little where there
    are more ranks than cores.
    """
    for run in runs:
        batch(comm, run, warmup)
    if calls is None:
        calls = plan_calls(_round(comm, runs, 1))
    if repetitions is None:
        repetitions = plan_repetitions(_round(comm, runs, calls))
    return Batches(calls, repetitions)


def _round(comm: Communicator, runs: Sequence[Timed], calls: int) -> float:
    """Return the seconds that one batch of each run takes, on the slowest rank."""
    total = sum(batch(comm, run, calls) for run in runs)
    slowest: float = max(comm.all_gather_object(total))
    return slowest


def alternate(
    comm: Communicator, runs: Sequence[Timed], batches: Batches
) -> list[NDArray[np.float64]]:
    """Return, per run, seconds a message by rank and repetition. Collective."""
    seconds = np.empty((len(runs), batches.repetitions))
    with _no_garbage_collection():
        for repetition in range(batches.repetitions):
            # Another order each time, the same on all ranks: a batch feels in which
            # state the one before left the caches and the scheduler.
            for index in Random(repetition).sample(range(len(runs)), len(runs)):
                total = batch(comm, runs[index], batches.calls)
                messages = batches.calls * runs[index].messages
                seconds[index, repetition] = total / messages
    everyones = np.stack(comm.all_gather_object(seconds), axis=1)
    return list(everyones)


def batch(comm: Communicator, run: Timed, calls: int) -> float:
    """Return this rank's seconds for so many calls."""
    if run.afresh:
        return sum(_timed(comm, run, 1) for _ in range(calls))
    return _timed(comm, run, calls)


def _timed(comm: Communicator, run: Timed, calls: int) -> float:
    """Rewrite the input, then return this rank's seconds for so many calls in a row.

    The second barrier keeps a rank that is done from disturbing those that are not.
    """
    run.rewrite()
    call = run.call
    comm.barrier()
    start = time.perf_counter()
    for _ in repeat(None, calls):
        call()
    seconds = time.perf_counter() - start
    comm.barrier()
    return seconds


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def check(comm: Communicator, run: Run) -> int | None:
    """Call once on fresh data; return the wrong elements of all ranks. Collective.

    None for what leaves no result of the collective.
    """
    if run.setup.algorithm in run.case.unlike:
        return None
    rank, ranks, op = comm.rank, comm.size, run.op
    patterns.spoil(run.receive)
    patterns.fill(run.send, patterns.pattern(rank, op, run.dtype, ranks))
    run.stages.before()
    run.call()
    run.stages.after()
    wrong = 0
    blocks = run.case.blocks(ranks, rank, run.setup.root)
    for index, (sources, part) in enumerate(blocks):
        if not sources and run.setup.algorithm == run.case.baseline:
            continue  # MPI leaves rank 0 of an exclusive scan without a result
        length = run.receive.size // len(blocks)
        block = run.receive[index * length : (index + 1) * length]
        right = patterns.expected(sources, op, run.dtype, ranks)
        wrong += patterns.count_wrong(block, right, part * length)
    total: int = sum(comm.all_gather_object(wrong))
    return total
