"""Every algorithm in every place, bound to memory and ready to be called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.algorithms import TABLE
from collectives.bench.arguments import Request
from collectives.bench.case import ORDINARY, Case, Form, Setup, Size, StagedRunner
from collectives.bench.cases import CUDA
from collectives.bench.measure import Run
from collectives.communicator import Communicator
from collectives.device_plans import choose_way
from collectives.kernels import kernel_for

__all__ = ["TRIAL_ELEMENTS", "Bench", "bind", "bind_trial", "chosen"]

# Elements of the calls by which an algorithm shows that it can do the dtype and op.
TRIAL_ELEMENTS = 16


@dataclass(frozen=True)
class Bench:
    """What stays the same from size to size."""

    comm: Communicator
    request: Request
    case: Case
    algorithms: Sequence[str]
    memory: tuple[NDArray[Any], NDArray[Any]]
    registered: tuple[NDArray[Any], NDArray[Any]]
    """As large; the same where nothing is registered."""


def bind(bench: Bench, size: Size) -> list[Run]:
    """Return every algorithm in every form and place, in the order of the rows."""
    return [
        _bind(bench, size, algorithm, form, place, runner)
        for algorithm in bench.algorithms
        for form in _forms(bench, algorithm)
        for place, runner in bench.case.staged(algorithm, form).items()
    ]


def _bind(
    bench: Bench,
    size: Size,
    algorithm: str,
    form: Form,
    place: str,
    runner: StagedRunner,
) -> Run:
    comm, request = bench.comm, bench.request
    shapes = request.shapes.shapes
    setup = Setup(comm, request.op, request.root, algorithm, place, shapes, form)
    memory = bench.registered if form.registered else bench.memory
    views = bench.case.views(memory, size, place, comm.rank)
    return Run(bench.case, setup, request.dtype, *views, runner(setup, *views))


def _forms(bench: Bench, algorithm: str) -> list[Form]:
    """Return the forms of the arrays of an algorithm; the MPI's are ordinary."""
    request = bench.request
    if bench.case.foreign(algorithm):
        return [ORDINARY]
    form = Form(request.registered, request.result == "shared")
    return [form, replace(form, touched=True)] if request.touch else [form]


def bind_trial(bench: Bench) -> list[Run]:
    """Return the same on a few elements."""
    ranks, itemsize = bench.comm.size, np.dtype(bench.request.dtype).itemsize
    count = TRIAL_ELEMENTS
    whole = count * itemsize * (ranks if bench.case.by_parts else 1)
    few = bench.request.shapes._replace(shapes=((count,),))
    trial = replace(bench, request=replace(bench.request, shapes=few))
    return bind(trial, Size(whole if bench.case.sized else 0, count))


def chosen(bench: Bench, size: Size, algorithm: str, form: Form) -> str | None:
    """Return what `auto` stands for at this size; None where that is not one thing."""
    if algorithm != "auto" or form.registered or bench.case.name not in TABLE:
        return None
    op = bench.request.op if bench.case.reduces else "sum"
    if bench.request.device == CUDA:
        return _way(bench, op)
    choice = bench.comm.choose(bench.case.name, size.nbytes, bench.request.dtype, op)
    return choice.algorithm


def _way(bench: Bench, op: str) -> str:
    """Return the way that `auto` takes with arrays on GPUs."""
    comm, case = bench.comm, bench.case
    kernel = kernel_for(op, np.dtype(bench.request.dtype)) if case.reduces else None
    way = choose_way(case.name, [kernel], comm._group, comm.options, None)
    return "staged" if way is None else way.algorithm
