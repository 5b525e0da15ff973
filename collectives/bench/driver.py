"""From a request to an exit status: allocate, time, check, print, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collectives.bench import buffers, device, measure, overlap, raw_nccl
from collectives.bench.arguments import Request
from collectives.bench.binding import (
    TRIAL_ELEMENTS,
    Bench,
    bind,
    bind_trial,
    chosen,
)
from collectives.bench.case import Call, Form, Size
from collectives.bench.cases import CUDA, cases_on
from collectives.bench.facts import gather_facts, memory_mode
from collectives.bench.floor import adding, moved
from collectives.bench.formats import FORMATS, Format
from collectives.bench.obstacles import choose_algorithms, draft, obstacle
from collectives.bench.overlap_formats import FORMATS as OVERLAP_FORMATS
from collectives.bench.results import Measured, Row, total_wrong
from collectives.bench.usage import Usage, agree
from collectives.communicator import Communicator
from collectives.errors import InvalidArgumentError, UnsupportedError

__all__ = ["run"]


class Way(NamedTuple):
    """What is done at each size, and how it is printed."""

    ready: Callable[[measure.Run], Call | None]
    measure: Callable[[Bench, Size], list[Row]]
    formats: dict[str, Format]


def run(comm: Communicator, request: Request, command: str) -> int:
    """Measure what was requested and print it on rank 0; collective.

    Returns:
        0, or 1 if any element was wrong; the same on every rank.

    Raises:
        Usage: this world, machine or MPI cannot do it; the same on every rank.
    """
    case, way = cases_on(request.device)[request.collective], WAYS[request.overlap]
    allocate = buffers.allocate
    if request.device == CUDA:
        agree(comm, _no_gpu(comm))
        allocate = device.allocate
    asked = request.sizes if case.sized else (0,)
    itemsize = np.dtype(request.dtype).itemsize
    sizes = [case.size(nbytes, itemsize, comm.size) for nbytes in asked]
    largest = max(size.nbytes for size in sizes)
    algorithms = agree(comm, choose_algorithms(comm, request))
    agree(comm, obstacle(comm, request, largest))

    room = max(largest, TRIAL_ELEMENTS * itemsize * comm.size)
    memory = (
        allocate(room, request.dtype),
        allocate(room, request.dtype),
    )
    registered = memory
    if request.registered and not case.listed:  # a list lies in registered packs
        count, dtype = room // itemsize, request.dtype
        registered = comm.zeros(count, dtype), comm.zeros(count, dtype)
    bench = Bench(comm, request, case, algorithms, memory, registered)
    _try_out(bench, way)
    facts = gather_facts(comm, request, asked, sizes, memory[0], command)

    form = way.formats[request.format]
    _say(comm, form.begin(facts))
    everything: list[Row] = []
    for size in sizes:
        rows = way.measure(bench, size)
        _say(comm, form.rows(facts, rows))
        everything += rows
    raw_nccl.close(comm)
    facts = replace(facts, memory=(*facts.memory, memory_mode(comm)))
    _say(comm, form.end(facts, everything))
    if request.json is not None and comm.rank == 0:
        _write(Path(request.json), way.formats["json"].end(facts, everything) + "\n")
    return 1 if total_wrong(everything) else 0


def _no_gpu(comm: Communicator) -> Usage | None:
    """Take a GPU; return why that cannot be done."""
    try:
        device.use(comm)
    except UnsupportedError as error:
        return Usage(f"--device cuda on rank {comm.rank}: {error}")
    return None


def _say(comm: Communicator, text: str) -> None:
    if comm.rank == 0 and text:
        print(text, flush=True)


def _write(path: Path, text: str) -> None:
    """Write a file that is complete whenever it is there."""
    draft(path).write_text(text, encoding="utf-8")
    draft(path).replace(path)


def _try_out(bench: Bench, way: Way) -> None:
    """Call everything once on a few elements; raise `Usage` for what cannot be done."""
    for run in bind_trial(bench):
        foreign = run.case.foreign(run.setup.algorithm)
        expected = Exception if foreign else (UnsupportedError, InvalidArgumentError)
        name, what = run.setup.algorithm, bench.case.name
        call = way.ready(run)
        if call is None:
            raise Usage(f"{what} by {name!r} cannot be started; --overlap needs that")
        try:
            call()
        except expected as error:
            raise Usage(
                f"algorithm {name!r} cannot {what} {run.dtype} "
                f"with op {run.op!r}: {' '.join(str(error).split())}"
            ) from error


def _measure_size(bench: Bench, size: Size) -> list[Row]:
    comm, request, case = bench.comm, bench.request, bench.case
    runs = bind(bench, size)
    timed: list[measure.Timed] = [*runs, adding(bench.memory, size)]
    batches = measure.plan(
        comm, timed, request.warmup, request.iterations, request.repetitions
    )
    *seconds, alone = measure.alternate(comm, timed, batches)
    added = Measured(alone, batches.calls, None)
    hosts = len(comm.topology.hosts)
    places: dict[tuple[str, Form], dict[str, Measured]] = {}
    for run, its_seconds in zip(runs, seconds, strict=True):
        wrong = measure.check(comm, run) if request.check else None
        setup = run.setup
        must = moved(case, comm.size, hosts, setup.place, setup.form)
        found = Measured(its_seconds, batches.calls, wrong, must)
        places.setdefault((setup.algorithm, setup.form), {})[setup.place] = found
    return [
        Row(
            case,
            size,
            comm.size,
            name,
            chosen(bench, size, name, form),
            measured,
            form,
            added,
        )
        for (name, form), measured in places.items()
    ]


WAYS = {
    False: Way(lambda run: run.call, _measure_size, FORMATS),
    True: Way(overlap.started, overlap.measure_size, OVERLAP_FORMATS),
}
