"""The curves of costs.py, measured: what each kind of move takes here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter

import numpy as np

from collectives.algorithms import DIRECT, NATIVE, SHARED, TABLE
from collectives.algorithms.direct import PIECE_BYTES, read_memory
from collectives.algorithms.rounds import Rounds
from collectives.algorithms.stepwise import run_schedule
from collectives.communicator import Communicator
from collectives.costs import Costs, Curve, whole
from collectives.errors import UnsupportedError
from collectives.kernels import Array, kernel_for
from collectives.moves import mail_bytes
from collectives.partition import segments
from collectives.schedules import Step
from collectives.tune.measuring import DTYPE, LONG_US, OP, Course, best_us
from collectives.window import MAIL_BYTES

SIZES = (8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
WHOLE_SIZES = (8, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20)
MOST = max(SIZES)
WHOLE = SHARED, DIRECT, NATIVE
BUDGET_S = 0.02  # of one size of one kind
HAND_OVERS = 20

Points = Iterator[tuple[str, float, float]]
"""Kind, bytes, microseconds."""


def fit(comm: Communicator, seconds: float) -> Costs:
    """Return what moves cost on these ranks, the same on all of them. Collective.

    After so many seconds only the smallest size of each kind that is left is measured.
    """
    until = perf_counter() + seconds
    host = comm.topology.host_of[comm.rank]
    near = comm.split(host)
    lane = comm.topology.local_rank
    far = comm.split(lane if lane == 0 else None)
    mine: list[tuple[str, float, float]] = []
    if near.size > 1:
        mine += _window(near, until)
    mine += _before(comm)
    if comm.topology.most_per_host > 1:
        comm.barrier()
        mine += _messages(near, "near", until) if near.size > 1 else ()
    if len(comm.topology.hosts) > 1:
        comm.barrier()
        mine += _messages(far, "far", until) if lane == 0 else ()
    mine += _whole_calls(comm, until)
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


def _before(comm: Communicator) -> Points:
    """Measure what comes before an algorithm: all that a barrier does."""
    yield "call", 0.0, best_us(comm, comm.barrier, BUDGET_S)


def _mail(comm: Communicator) -> Points:
    """Measure small all-reduces that go through the window's mail."""
    course = Course(comm, MAIL_BYTES)
    most = mail_bytes(comm.size)
    for nbytes in (*(size for size in SIZES if size < most), most):
        run = course.run("all_reduce", SHARED, nbytes)
        yield "mail", nbytes, best_us(comm, run.call, BUDGET_S)


def _growing(
    comm: Communicator, sizes: Sequence[int], until: float
) -> Iterator[tuple[int, Callable[[float], None]]]:
    """Yield sizes, and what is to be told how long a call took.

    The first one in any case; others as long as calls are short and there is time.
    """
    longest = [0.0]
    for number, nbytes in enumerate(sizes):
        late = comm.broadcast_object(perf_counter() > until)
        if number == 0 or (max(longest) < LONG_US and not late):
            yield nbytes, longest.append


def _messages(comm: Communicator, level: str, until: float) -> Points:
    """Measure steps in which all send to the next rank, with and without adding."""
    group, planner = comm._group, comm._planner
    kernel = kernel_for(OP, np.dtype(DTYPE))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    whole = (0, comm.size)
    arrays = [np.zeros(MOST // 4, DTYPE) for _ in range(2)]
    for nbytes, done in _growing(comm, SIZES, until):
        source, work = (array[: nbytes // 4] for array in arrays)
        bounds = (0,) * comm.size + (source.size,)
        task = planner.task(bounds, source, work, kernel)
        for name, adds in (("copy", False), ("combine", True)):
            steps = [Step(right, whole, left, whole, reduce=adds)]
            us = best_us(comm, partial(run_schedule, task, steps), BUDGET_S)
            done(us)
            yield f"{level}_{name}", nbytes, us
    assert not group.stranded, "a step that ended leaves nothing behind"


def _window(comm: Communicator, until: float) -> Points:
    """Measure hand-overs, and bytes through the window and in private memory."""
    group, timeout_s = comm._group, comm.options.timeout_s
    if comm.probe() is None or group.window is None:
        return

    def hand_overs() -> None:
        for _ in range(HAND_OVERS):
            group.hand_over(timeout_s)

    yield "hand_over", 0.0, best_us(comm, hand_overs, BUDGET_S) / HAND_OVERS
    yield from _mail(comm)
    arrays = [np.zeros(MOST, np.uint8) for _ in range(2)]
    floats = [array.view(DTYPE) for array in arrays]
    read = None if group.not_direct else _reader(comm, arrays[0])
    for nbytes, _ in _growing(comm, SIZES, until):
        first, second = (array[: nbytes // 4] for array in floats)
        adding = partial(np.add, first, second, first)
        yield "reduce", nbytes, best_us(comm, adding, BUDGET_S)
        storing = _through_window(comm, *(array[:nbytes] for array in arrays))
        yield "store", nbytes, best_us(comm, storing, BUDGET_S)
        if read is not None:
            reading = partial(read, arrays[1][:nbytes])
            yield "read", nbytes, best_us(comm, reading, BUDGET_S)
    comm.barrier()  # before the memory goes that others read


def _through_window(
    comm: Communicator, source: Array, target: Array
) -> Callable[[], None]:
    """Return what takes an array through the window, slot by slot."""
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

    return store


def _reader(comm: Communicator, own: Array) -> Callable[[Array], None]:
    """Return what fills an array from the next rank's `own`, piece by piece."""
    places = comm.all_gather_object((os.getpid(), own.ctypes.data))
    process, address = places[(comm.rank + 1) % comm.size]

    def read(out: Array) -> None:
        for low, high in segments(0, out.size, PIECE_BYTES):
            read_memory(process, address + low, out[low:high])

    return read


def _whole_calls(comm: Communicator, until: float) -> Points:
    """Measure whole calls by what has no schedule, for just these ranks."""
    course = Course(comm, MOST)
    for collective, name in ((c, n) for n in WHOLE for c in TABLE if n in TABLE[c]):
        for nbytes, done in _growing(comm, WHOLE_SIZES, until):
            try:
                run = course.run(collective, name, nbytes)
                us = best_us(comm, run.call, BUDGET_S)
            except UnsupportedError:  # no MPI, no memory in common, not permitted
                break
            done(us)
            yield whole(collective, name), nbytes, us
