"""The curves of costs.py, measured: what each kind of move takes here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from collectives.algorithms import AUTO, NATIVE, TABLE
from collectives.algorithms.direct import PIECE_BYTES, read_memory
from collectives.algorithms.rounds import Rounds
from collectives.algorithms.stepwise import run_schedule
from collectives.communicator import Communicator
from collectives.costs import NATIVE as WHOLE_CALL
from collectives.costs import Costs, Curve
from collectives.errors import UnsupportedError
from collectives.kernels import Array, kernel_for
from collectives.moves import Place, before
from collectives.partition import segments
from collectives.schedules import Step
from collectives.tune.measuring import DTYPE, LONG_US, OP, Course, best_us

FEW = 8
SIZES = (FEW, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
WHOLE_SIZES = SIZES[:2] + SIZES[3:]
MOST = max(SIZES)
BUDGET_S = 0.03  # of one size of one kind
HAND_OVERS = 20

Points = Iterator[tuple[str, float, float]]
"""Kind, bytes, microseconds."""


def fit(comm: Communicator) -> Costs:
    """Return what moves cost on these ranks, the same on all of them. Collective."""
    host = comm.topology.host_of[comm.rank]
    near = comm.split(host)
    lane = comm.topology.local_rank
    far = comm.split(lane if lane == 0 else None)
    mine: list[tuple[str, float, float]] = []
    if near.size > 1:
        mine += _window(near)
    mine += _before(comm, mine)
    if comm.topology.most_per_host > 1:
        comm.barrier()
        mine += _messages(near, "near") if near.size > 1 else ()
    if len(comm.topology.hosts) > 1:
        comm.barrier()
        mine += _messages(far, "far") if lane == 0 else ()
    mine += _whole_calls(comm, {kind: us for kind, _, us in mine})
    for one in (far, near) if lane == 0 else (near,):
        one.close()
    return Costs(_joined(comm.all_gather_object(mine)))


def _joined(everyones: list[list[tuple[str, float, float]]]) -> dict[str, Curve]:
    """Return curves of what the slowest host needs."""
    slowest: dict[str, dict[float, float]] = {}
    for kind, nbytes, us in (point for points in everyones for point in points):
        its = slowest.setdefault(kind, {})
        its[nbytes] = max(us, its.get(nbytes, 0.0))
    return {kind: tuple(sorted(its.items())) for kind, its in slowest.items()}


def _before(comm: Communicator, known: list[tuple[str, float, float]]) -> Points:
    """Measure what comes before an algorithm, and all that a barrier does."""
    yield "call", 0.0, best_us(comm, comm.barrier, BUDGET_S)
    if not comm._group.one_board:
        return
    small = Course(comm, 0).run("all_reduce", AUTO, FEW)
    least = {kind: us for kind, nbytes, us in reversed(known) if nbytes in (0, FEW)}
    adding = least.get("store", 0.0) + (comm.size - 1) * least.get("reduce", 0.0)
    yield "quick", 0.0, max(best_us(comm, small.call, BUDGET_S) - adding, 0.1)


def _growing(sizes: Sequence[int]) -> Iterator[tuple[int, Callable[[float], None]]]:
    """Yield sizes while calls are short, and what is to be told how long one was."""
    longest = [0.0]
    for nbytes in sizes:
        if max(longest) < LONG_US:
            yield nbytes, longest.append


def _messages(comm: Communicator, level: str) -> Points:
    """Measure steps in which all send to the next rank, with and without adding."""
    group, planner = comm._group, comm._planner
    kernel = kernel_for(OP, np.dtype(DTYPE))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    whole = (0, comm.size)
    arrays = [np.zeros(MOST // 4, DTYPE) for _ in range(2)]
    for nbytes, done in _growing(SIZES):
        source, work = (array[: nbytes // 4] for array in arrays)
        bounds = (0,) * comm.size + (source.size,)
        task = planner.task(bounds, source, work, kernel)
        for name, adds in (("copy", False), ("combine", True)):
            steps = [Step(right, whole, left, whole, reduce=adds)]
            us = best_us(comm, partial(run_schedule, task, steps), BUDGET_S)
            done(us)
            yield f"{level}_{name}", nbytes, us
    assert not group.stranded, "a step that ended leaves nothing behind"


def _window(comm: Communicator) -> Points:
    """Measure hand-overs, and bytes through the window and in private memory."""
    group, timeout_s = comm._group, comm.options.timeout_s
    if comm.probe() is None or group.window is None:
        return

    def hand_overs() -> None:
        for _ in range(HAND_OVERS):
            group.hand_over(timeout_s)

    hand_over = best_us(comm, hand_overs, BUDGET_S) / HAND_OVERS
    yield "hand_over", 0.0, hand_over
    arrays = [np.zeros(MOST, np.uint8) for _ in range(2)]
    floats = [array.view(DTYPE) for array in arrays]
    read = None if group.not_direct else _reader(comm, arrays[0])
    for nbytes in SIZES:
        first, second = (array[: nbytes // 4] for array in floats)
        adding = partial(np.add, first, second, first)
        yield "reduce", nbytes, best_us(comm, adding, BUDGET_S)
        storing, rounds = _through_window(comm, *(a[:nbytes] for a in arrays))
        us = best_us(comm, storing, BUDGET_S) - rounds * hand_over
        yield "store", nbytes, max(us, nbytes / 1e5)  # no memory is faster than that
        if read is not None:
            reading = partial(read, arrays[1][:nbytes])
            yield "read", nbytes, best_us(comm, reading, BUDGET_S)
    comm.barrier()  # before the memory goes that others read


def _through_window(
    comm: Communicator, source: Array, target: Array
) -> tuple[Callable[[], None], int]:
    """Return what takes an array through the window, and its hand-overs."""
    rounds = Rounds(comm._planner.task((), source, target), divided=False)
    pieces = segments(0, source.size, rounds.length)

    def store() -> None:
        for number, (low, high) in enumerate(pieces):
            slots = rounds.slots(number)
            slots[rounds.rank][: high - low] = source[low:high]
            rounds.hand_over()
            theirs = slots[(rounds.rank + 1) % rounds.size]
            target[low:high] = theirs[: high - low]
        rounds.end(len(pieces))

    return store, len(pieces)


def _reader(comm: Communicator, own: Array) -> Callable[[Array], None]:
    """Return what fills an array from the next rank's `own`, piece by piece."""
    places = comm.all_gather_object((os.getpid(), own.ctypes.data))
    process, address = places[(comm.rank + 1) % comm.size]

    def read(out: Array) -> None:
        for low, high in segments(0, out.size, PIECE_BYTES):
            read_memory(process, address + low, out[low:high])

    return read


def _whole_calls(comm: Communicator, known: dict[str, float]) -> Points:
    """Measure the MPI's own collectives, less what comes before each."""
    course, topology = Course(comm, MOST), comm.topology
    place = Place(comm.size, topology.most_per_host)
    for collective in TABLE:
        for nbytes, done in _growing(WHOLE_SIZES):
            try:
                run = course.run(collective, NATIVE, nbytes)
                us = best_us(comm, run.call, BUDGET_S)
            except UnsupportedError:  # there is no MPI
                return
            done(us)
            us -= known[before(collective, place).kind]
            yield WHOLE_CALL + collective, nbytes, max(us, 0.1)
