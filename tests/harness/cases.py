"""Calls of every kind: collective x algorithm x dtype x op x layout x shape x place.

`cases` says which there are, `run` makes one of them on any communicator and tells what
was wrong with it. How a collective's cases are made stands in makers.py.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count, product
from random import Random
from typing import Any

import numpy as np

import collectives
from collectives import Communicator, UnsupportedError
from collectives.algorithms import TABLE, native
from harness.arrays import (
    KIND_OF,
    LAYOUTS,
    OPS_OF,
    ORDER,
    PLACES,
    digest_of,
    dtype_of,
    equal,
)
from harness.makers import COLLECTIVES, SHAPES, Case
from harness.oracle import result_dtype

Array = Any

SEGMENT = 40
"""Elements in a segment, with the communicator that `segmented` returns."""

NEW, IN_PLACE = "new", "in place"


CELLS = [
    (collective, algorithm, dtype)
    for collective in COLLECTIVES
    for algorithm in collectives.ALGORITHMS[collective]
    for dtype in KIND_OF
]
"""The advertised table; each has cases of every op that its dtype knows."""

# So many results at least are compared on each MPI, for any number of ranks: of the few
# cases, and of all. Fewer means that some were lost, whatever each test says.
FLOORS = {
    "MPICH": (11_500, 690_000),
    "Open MPI": (11_500, 690_000),
    "Intel MPI": (11_500, 690_000),
}


def segmented(comm: Communicator, dtype: str) -> Communicator:
    """Return a communicator under which "many segments" are many."""
    return comm.with_options(segment_bytes=max(64, SEGMENT * dtype_of(dtype).itemsize))


def ops_of(collective: str, dtype: str) -> tuple[str, ...]:
    """Return the ops of a collective; one without a name where nothing is reduced."""
    row = COLLECTIVES[collective]
    if not row.reduces:
        return ("",)
    return tuple(op for op in OPS_OF[KIND_OF[dtype]] if op not in row.without)


def refused(algorithm: str, dtype: str, op: str) -> bool:
    """Tell whether this must be an UnsupportedError, because some MPI does it wrong.

    They lose NaN in min and max; Open MPI's sums of short integers saturate, here and
    there, instead of wrapping.
    """
    loses_nan = op in ORDER and KIND_OF[dtype] in ("narrow", "float")
    saturates = op == "sum" and dtype in ("int8", "uint8", "int16", "uint16")
    return algorithm == "native" and (loses_nan or saturates)


def impossible(comm: Communicator, collective: str, algorithm: str) -> str:
    """Return why nothing at all can be called so on these hosts; empty when it can."""
    row, hosts = TABLE[collective].get(algorithm), comm.topology.host_of
    if row is not None and row.host_by_host and list(hosts) != sorted(hosts):
        return "the ranks of a host do not follow each other"
    return native.crash(collective, comm.topology) if algorithm == "native" else ""


def has_result(case: Case) -> bool:
    """Tell whether a case is one whose result is compared."""
    return not refused(case.algorithm, case.dtype, case.op)


def cases(
    collective: str, algorithm: str, dtype: str, *, full: bool, size: int
) -> Iterator[Case]:
    """Yield the cases of one cell: all, or a few.

    The few have each op with two layouts, which take turns, and each layout with an op
    that has a result. The rest is drawn by lot, always the same lot; the cells of a
    collective together have every shape and place. Roots and axes go round.
    """
    cell = (collective, algorithm, dtype)
    lot, turn = Random(str(cell)), count()
    turns = COLLECTIVES[collective].turns(size)
    few = _few(*cell)
    for op, layout in product(ops_of(collective, dtype), LAYOUTS):
        combinations = [
            (shape, place)
            for shape, place in product(SHAPES, (NEW, IN_PLACE, *PLACES))
            if _possible(cell, op, layout, shape, place)
        ]
        if not full:
            combinations = [lot.choice(combinations)] if (op, layout) in few else []
        for shape, place in combinations:
            yield Case(*cell, op, layout, shape, place, next(turn) % turns)


def _few(collective: str, algorithm: str, dtype: str) -> set[tuple[str, str]]:
    """Return the ops and layouts that the few cases of a cell have."""
    names, first = list(LAYOUTS), list(KIND_OF).index(dtype)
    ops = ops_of(collective, dtype)
    few = {
        (op, names[(first + place + further) % len(names)])
        for place, op in enumerate(ops)
        for further in (0, 3)
    }
    with_result = [op for op in ops if not refused(algorithm, dtype, op)]
    there = {layout for op, layout in few if op in with_result}
    return few | {(with_result[0], layout) for layout in names if layout not in there}


def _possible(
    cell: tuple[str, str, str], op: str, layout: str, shape: str, place: str
) -> bool:
    collective, _, dtype = cell
    if layout == "Fortran" and len(SHAPES[shape](2)) < 2:
        return False  # such an array is in C order as well
    if place != IN_PLACE:
        return True
    same_dtype = not op or result_dtype(dtype, op) == dtype_of(dtype)
    writable = layout not in ("read-only", "byte-swapped")
    return COLLECTIVES[collective].in_place and same_dtype and writable


def run(comm: Communicator, case: Case) -> tuple[str, bytes]:
    """Make the call; return what was wrong (or nothing) and a digest of the result."""
    made = COLLECTIVES[case.collective].make(comm, case)
    x = LAYOUTS[case.layout](made.x)
    expected = made.expected
    place: Any = nullcontext()
    if case.place == IN_PLACE and expected is not None:
        place = nullcontext(x)
    elif case.place in PLACES and expected is not None:
        place = PLACES[case.place](expected.shape, expected.dtype)
    complaints, digest = [], b""
    try:
        with place as out:
            try:
                result = made.call(x, out)
            except UnsupportedError:
                if not has_result(case):
                    return "", digest
                raise
            if not has_result(case):
                complaints.append("was not refused")
            if expected is None:
                if result is not None:
                    complaints.append(f"wanted None, got {type(result).__name__}")
            else:
                complaints += _wrong(result, expected, out)
                same = COLLECTIVES[case.collective].same and not complaints
                digest = digest_of(result) if same else b""
            if out is not x and not equal(x, made.x):
                complaints.append("the input was changed")
    except Exception as error:  # one that comes on all ranks need not end the test
        complaints.append(f"{type(error).__name__}: {error}")
    return "; ".join(complaints), digest


def _wrong(result: Any, expected: Array, out: Array | None) -> list[str]:
    if type(result) is not np.ndarray:
        return [f"the result is a {type(result).__name__}"]
    if out is not None and result is not out:
        return ["out was given, and something else returned"]
    if (result.dtype, result.shape) != (expected.dtype, expected.shape):
        return [
            f"got {result.dtype} {result.shape}, "
            f"wanted {expected.dtype} {expected.shape}"
        ]
    if not equal(result, expected):
        wrong = np.flatnonzero(~np.atleast_1d(result == expected))
        first = int(wrong[0])
        return [
            f"{len(wrong)} of {result.size} wrong, the first is number {first}: got "
            f"{result.reshape(-1)[first]}, wanted {expected.reshape(-1)[first]}"
        ]
    return []
