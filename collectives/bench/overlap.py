"""How much of a collective hides behind a computation, as in OSU's non-blocking tables.

Four things are timed in turn: the blocking call; a computation of NumPy's that takes
about as long; the call started, and waited for at once; and the call started, then the
computation, then the wait. If they ran one after the other, the last would take as long
as the first two. The part of the blocking call that is saved is the overlap:

    overlap = (blocking + computation - overall) / blocking
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from collectives.bench import measure
from collectives.bench.binding import Bench, bind, chosen
from collectives.bench.case import IN_PLACE, ORDINARY, Call, Size, Staged
from collectives.bench.measure import Batches, Run
from collectives.bench.overlap_formats import BLOCKING, COMPUTATION, OVERALL, STARTED
from collectives.bench.results import Measured, Row

__all__ = ["computation", "measure_size", "started"]

# NumPy gives the interpreter free for as long as it works on one piece: some 20 us.
PIECE_ELEMENTS = 1 << 16
# The lengths of calls and of so many pieces are compared over so many batches.
TRIAL_PIECES, TRIALS = 32, 7


def started(run: Run, between: Call | None = None) -> Call | None:
    """Return a call that starts that of `run`, does something, and waits.

    None where the call cannot be started. Ours are started by `start_...`, MPI's by
    the function with an I.
    """
    if not isinstance(run.call, partial):
        return None
    function: Any = run.call.func
    raw = run.case.foreign(run.setup.algorithm)
    name = f"I{function.__name__.lower()}" if raw else f"start_{function.__name__}"
    starter = getattr(function.__self__, name, None)
    if starter is None:
        return None
    start = partial(starter, *run.call.args, **run.call.keywords)
    wait = "Wait" if raw else "wait"

    def call() -> None:
        handle = start()
        if between is not None:
            between()
        getattr(handle, wait)()

    return call


def computation(pieces: float) -> Call:
    """Return a computation without any memory traffic; `pieces` is its length."""
    count = max(1, ceil(pieces))
    numbers = np.ones(max(1, round(PIECE_ELEMENTS * pieces / count)), np.float32)

    def compute() -> None:
        for _ in range(count):
            np.sqrt(numbers, out=numbers)

    return compute


def measure_size(bench: Bench, size: Size) -> list[Row]:
    """Return a row per algorithm; its places are the four things that were timed."""
    comm, request = bench.comm, bench.request
    given = (request.warmup, request.iterations, request.repetitions)
    blocking = [run for run in bind(bench, size) if run.setup.place == _place(run)]
    trials = [*blocking, replace(blocking[0], stages=Staged(computation(TRIAL_PIECES)))]
    calls = measure.plan(comm, blocking, *given).calls
    results = measure.alternate(comm, trials, Batches(calls, TRIALS))
    *lengths, trial = (result.max(axis=0).min() for result in results)
    table = [
        _things(run, TRIAL_PIECES * length / trial)
        for run, length in zip(blocking, lengths, strict=True)
    ]
    runs = [run for things in table for run in things.values()]
    batches = measure.plan(comm, runs, *given)
    seconds = iter(measure.alternate(comm, runs, batches))
    rows = []
    for things in table:
        name = things[OVERALL].setup.algorithm
        wrong = measure.check(comm, things[OVERALL]) if request.check else None
        measured = {
            thing: Measured(
                next(seconds), batches.calls, wrong if thing == OVERALL else None
            )
            for thing in things
        }
        auto = chosen(bench, size, name, ORDINARY)
        rows.append(Row(bench.case, size, comm.size, name, auto, measured))
    return rows


def _place(run: Run) -> str:
    """Return where a call is measured: in place if it can."""
    table = run.case.runners(run.setup.algorithm)
    return IN_PLACE if IN_PLACE in table else next(iter(table))


def _things(run: Run, pieces: float) -> dict[str, Run]:
    """Return what is timed for one algorithm."""
    compute = computation(pieces)
    calls = {
        OVERALL: started(run, compute),
        COMPUTATION: compute,
        BLOCKING: run.call,
        STARTED: started(run),
    }
    return {
        thing: replace(run, stages=Staged(call))
        for thing, call in calls.items()
        if call is not None
    }
