"""From a request to an exit status: allocate, time, check, print, write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.bench import buffers, measure
from collectives.bench.arguments import Request
from collectives.bench.cases import BASELINE, CASES, MPI_OPS, Case, Setup, Size
from collectives.bench.facts import gather_facts
from collectives.bench.formats import FORMATS, as_json
from collectives.bench.results import Measured, Row, total_wrong
from collectives.bench.usage import Usage, agree
from collectives.communicator import Communicator
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.kernels import kernel_for

__all__ = ["run"]


@dataclass(frozen=True)
class _Bench:
    """What stays the same from size to size."""

    comm: Communicator
    request: Request
    case: Case
    algorithms: tuple[str, ...]
    memory: tuple[NDArray[Any], NDArray[Any]]


def run(comm: Communicator, request: Request, command: str) -> int:
    """Measure what was requested and print it on rank 0; collective.

    Returns:
        0, or 1 if any element was wrong; the same on every rank.

    Raises:
        Usage: this world, machine or MPI cannot do it; the same on every rank.
    """
    case = CASES[request.collective]
    asked = request.sizes if case.sized else (0,)
    itemsize = np.dtype(request.dtype).itemsize
    sizes = [case.size(nbytes, itemsize, comm.size) for nbytes in asked]
    largest = max(size.nbytes for size in sizes)
    algorithms = agree(comm, _algorithms(comm, request))
    agree(comm, _obstacle(comm, request, largest))

    room = max(largest, measure.TRIAL_ELEMENTS * itemsize * comm.size)
    memory = tuple(buffers.allocate(room, request.dtype) for _ in range(2))
    bench = _Bench(comm, request, case, algorithms, (memory[0], memory[1]))
    _try_out(bench)
    facts = gather_facts(comm, request, asked, sizes, memory[0], command)

    form = FORMATS[request.format]
    _say(comm, form.begin(facts))
    everything: list[Row] = []
    for size in sizes:
        rows = _measure_size(bench, size)
        _say(comm, form.rows(facts, rows))
        everything += rows
    _say(comm, form.end(facts, everything))
    if request.json is not None and comm.rank == 0:
        _write(Path(request.json), as_json(facts, everything) + "\n")
    return 1 if total_wrong(everything) else 0


def _say(comm: Communicator, text: str) -> None:
    if comm.rank == 0 and text:
        print(text, flush=True)


def _algorithms(comm: Communicator, request: Request) -> tuple[str, ...] | Usage:
    """Return what to compare; by default the raw call, where there is one, and auto."""
    has_baseline = comm.mpi is not None
    if request.algorithms is None:
        can = has_baseline and (
            request.op in MPI_OPS or not CASES[request.collective].reduces
        )
        return (BASELINE, "auto") if can else ("auto",)
    if BASELINE in request.algorithms:
        if not has_baseline:
            return Usage("algorithm 'mpi' needs mpi4py and an MPI; this world has none")
        if CASES[request.collective].reduces and request.op not in MPI_OPS:
            return Usage(
                f"algorithm 'mpi' has no op {request.op!r}; it has: {' '.join(MPI_OPS)}"
            )
    return request.algorithms


def _obstacle(comm: Communicator, request: Request, largest: int) -> Usage | None:
    """Return why this cannot run here, before anything is allocated."""
    case = CASES[request.collective]
    if case.rooted and request.root >= comm.size:
        return Usage(f"-r {request.root} is not a rank; there are {comm.size} ranks")
    if case.reduces:
        try:
            kernel = kernel_for(request.op, np.dtype(request.dtype))
        except UnsupportedError as error:
            return Usage(str(error))
        if kernel.result_dtype != request.dtype:
            return Usage(
                f"op {request.op} of {request.dtype} gives {kernel.result_dtype} and "
                "cannot be done in place; wanted a float or complex dtype"
            )
    needed = 2 * largest * comm.topology.local_size
    available = buffers.available_bytes()
    if available is not None and needed > available:
        return Usage(
            f"-e {request.max_bytes} needs {needed >> 20} MiB on the host of rank "
            f"{comm.rank}, which has {available >> 20} MiB; give a smaller -e"
        )
    if request.json is not None and comm.rank == 0:
        return _unwritable(Path(request.json))
    return None


def _unwritable(path: Path) -> Usage | None:
    """Return why a file cannot be written; asked before minutes are spent on it."""
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a directory")
        _draft(path).touch()
        _draft(path).unlink()
    except OSError as error:
        return Usage(f"cannot write --json {path}: {error.strerror or error}")
    return None


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _write(path: Path, text: str) -> None:
    """Write a file that is complete whenever it is there."""
    _draft(path).write_text(text, encoding="utf-8")
    _draft(path).replace(path)


def _runs(bench: _Bench, size: Size) -> list[measure.Run]:
    """Return every algorithm in every place that it has, in the order of the rows."""
    runs = []
    for algorithm in bench.algorithms:
        table = bench.case.raw if algorithm == BASELINE else bench.case.ours
        for place, runner in table.items():
            request = bench.request
            setup = Setup(bench.comm, request.op, request.root, algorithm, place)
            views = bench.case.views(bench.memory, size, place, bench.comm.rank)
            call = runner(setup, *views)
            runs.append(measure.Run(bench.case, setup, request.dtype, *views, call))
    return runs


def _try_out(bench: _Bench) -> None:
    """Call everything once on a few elements; raise `Usage` for what cannot be done."""
    ranks, itemsize = bench.comm.size, np.dtype(bench.request.dtype).itemsize
    count = measure.TRIAL_ELEMENTS
    whole = count * itemsize * (ranks if bench.case.by_parts else 1)
    for run in _runs(bench, Size(whole if bench.case.sized else 0, count)):
        foreign = run.setup.algorithm == BASELINE
        expected = Exception if foreign else (UnsupportedError, InvalidArgumentError)
        try:
            run.call()
        except expected as error:
            raise Usage(
                f"algorithm {run.setup.algorithm!r} cannot {bench.case.name} "
                f"{run.dtype} with op {run.op!r}: {' '.join(str(error).split())}"
            ) from error


def _measure_size(bench: _Bench, size: Size) -> list[Row]:
    comm, request = bench.comm, bench.request
    runs = _runs(bench, size)
    batches = measure.plan(
        comm, runs, request.warmup, request.iterations, request.repetitions
    )
    seconds = measure.alternate(comm, runs, batches)
    wrong = [measure.check(comm, run) if request.check else None for run in runs]
    results = [
        Measured(s, batches.calls, w) for s, w in zip(seconds, wrong, strict=True)
    ]
    return [
        Row(
            bench.case,
            size,
            comm.size,
            name,
            _chosen(bench, size, name),
            _places(name, runs, results),
        )
        for name in bench.algorithms
    ]


def _chosen(bench: _Bench, size: Size, algorithm: str) -> str | None:
    """Return what `auto` stands for at this size; None for any other algorithm."""
    if algorithm != "auto" or not bench.case.sized:
        return None
    op = bench.request.op if bench.case.reduces else "sum"
    choice = bench.comm.choose(bench.case.name, size.nbytes, bench.request.dtype, op)
    return choice.algorithm


def _places(
    algorithm: str, runs: Sequence[measure.Run], results: Sequence[Measured]
) -> dict[str, Measured]:
    """Pick the results of one algorithm by place."""
    return {
        run.setup.place: result
        for run, result in zip(runs, results, strict=True)
        if run.setup.algorithm == algorithm
    }
