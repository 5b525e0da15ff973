"""Calls with device arrays: collective x way x dtype x op x layout x shape x place.

As cases.py does for host arrays, and with the same inputs and expectations; what
differs is where arrays lie, on which stream the call is made, and that a rank without a
GPU makes it with host arrays.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count, cycle, islice, product
from random import Random
from typing import Any

import numpy as np

import collectives
from collectives import Communicator, MismatchError, UnsupportedError
from collectives.algorithms import native
from collectives.algorithms.on_device import ALONE, WAYS
from collectives.calls.placing import ONE_SIDED
from collectives.gpu.facts import STAGED
from harness import cases as on_host
from harness.arrays import KIND_OF, LOGIC, digest_of, dtype_of, equal
from harness.cases import IN_PLACE, NEW, ops_of
from harness.makers import COLLECTIVES, SHAPES, Case
from harness.oracle import result_dtype

Array = Any

ON_DEVICE = tuple(
    name
    for name in KIND_OF
    if name not in ("longdouble", "clongdouble", "float8_e4m3fn")
)
"""Dtypes that CuPy has."""

AUTO, HOST = "auto", "host"
"""Names of ways, beside those of the table: whatever the call takes, and the algorithms
of the host by turns."""


def ways(collective: str, size: int) -> tuple[str, ...]:
    """Return the names of the ways of a collective, on so many ranks."""
    named = [way for way, told in WAYS.items() if collective in told.rows]
    if collective in ONE_SIDED:
        named = []
    return (*(way for way in named if way != ALONE or size == 1), STAGED, AUTO, HOST)


def refused(way: str, dtype: str, op: str) -> bool:
    """Tell whether a way that can be had must refuse an op, as its library does."""
    bits = op in LOGIC and dtype != "bool"
    products = op == "prod" and KIND_OF[dtype] == "complex"
    by_nccl = way == "nccl" and (bits or products)
    return by_nccl or on_host.refused(way, dtype, op)


# --- layouts: the same elements on the device, laid out in different ways ------------


def _inside(array: Array) -> Array:
    """A piece of a larger allocation, that begins at no even address."""
    cp = _cupy()
    parent = cp.zeros(array.size + 10, array.dtype)
    view = parent[3 : 3 + array.size].reshape(array.shape)
    view[...] = cp.asarray(array)
    return view


def _strided(array: Array) -> Array:
    if array.ndim == 0:
        return _inside(array)
    return _cupy().asarray(np.repeat(array, 2, axis=-1))[..., ::2]


def _reversed(array: Array) -> Array:
    backwards = (slice(None, None, -1),) * array.ndim
    return _cupy().asarray(array[backwards].copy())[backwards]


def _cupy() -> Any:
    import cupy

    return cupy


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda array: _cupy().asarray(array),
    "Fortran": lambda array: _cupy().asarray(array.copy(order="F"), order="F"),
    "strided": _strided,
    "reversed": _reversed,
    "inside": _inside,
}


@contextmanager
def _contiguous(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Array]:
    """A piece of a larger flat array."""
    size = int(np.prod(shape))
    parent = _cupy().full(size + 10, 7, dtype)
    yield parent[5 : 5 + size].reshape(shape)
    parent[5 : 5 + size] = 7
    assert (parent.get() == dtype.type(7)).all(), "a neighbour was touched"


@contextmanager
def _view(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Array]:
    """Every other element along every axis, the first axis backwards."""
    parent = _cupy().full([2 * length + 3 for length in (*shape, 1)], 7, dtype)
    inside = tuple(slice(1, 2 * length + 1, 2) for length in (*shape, 1))
    view = parent[inside][..., 0]
    yield view[::-1] if shape else view
    view[...] = 7
    assert (parent.get() == dtype.type(7)).all(), "a neighbour was touched"


PLACES: dict[str, Any] = {"contiguous": _contiguous, "view": _view}


# --- cases ---------------------------------------------------------------------------


def cases(
    collective: str, way: str, dtype: str, *, full: bool, size: int
) -> list[Case]:
    """Return the cases of one cell: all, or one of each op, or of half of them.

    The layouts go round, from dtype to dtype; with whatever a call takes by itself,
    each dtype has all of them.
    """
    cell = (collective, way, dtype)
    lot, turn = Random(str(cell)), count()
    turns = COLLECTIVES[collective].turns(size)
    ops, names = ops_of(collective, dtype), list(LAYOUTS)
    if not full and way != AUTO:  # half of them, by turns
        ops = ops[ON_DEVICE.index(dtype) % 2 :: 2] or ops
    if full:
        pairs = list(product(ops, names))
    else:
        first = 2 * ON_DEVICE.index(dtype) % len(names)
        number = max(len(ops), len(names) if way == AUTO else 2)
        layouts = islice(cycle(names), first, None)
        pairs = list(islice(zip(cycle(ops), layouts, strict=False), number))
    made = []
    for op, layout in pairs:
        combinations = [
            (shape, place)
            for shape, place in product(SHAPES, (NEW, IN_PLACE, *PLACES))
            if _possible(cell, op, layout, shape, place)
        ]
        for shape, place in combinations if full else [lot.choice(combinations)]:
            number = next(turn)
            known = [n for n in collectives.ALGORITHMS[collective] if n not in WAYS]
            name = known[number % len(known)] if way == HOST else way
            made.append(
                Case(collective, name, dtype, op, layout, shape, place, number % turns)
            )
    return made


def _possible(
    cell: tuple[str, str, str], op: str, layout: str, shape: str, place: str
) -> bool:
    collective, _, dtype = cell
    if layout == "Fortran" and len(SHAPES[shape](2)) < 2:
        return False  # such an array is in C order as well
    if place != IN_PLACE:
        return True
    same_dtype = not op or result_dtype(dtype, op) == dtype_of(dtype)
    return COLLECTIVES[collective].in_place and same_dtype


def run(comm: Communicator, case: Case, has_gpu: bool) -> tuple[str, bytes, str]:
    """Make the call; return complaints, a digest of the result, and a refusal's text.

    The call is made on the default stream or another, which hold work that has not been
    done when it begins.
    """
    if not has_gpu:
        return _run(comm, case, np.ndarray, lambda array: array.copy(), {})
    cp = _cupy()
    other = cp.cuda.Stream(non_blocking=True) if case.turn % 2 == 0 else nullcontext()
    with other:
        return _run(comm, case, cp.ndarray, LAYOUTS[case.layout], PLACES)


def _run(
    comm: Communicator, case: Case, kind: Any, lay: Any, places: Any
) -> tuple[str, bytes, str]:
    made = COLLECTIVES[case.collective].make(comm, case)
    x = lay(made.x)
    expected = made.expected
    if case.collective == "scatter" and comm.rank != case.turn % comm.size:
        # Who gives nothing and says not where the result is to go gets it on the host.
        kind = np.ndarray if case.place == NEW else kind
    place: Any = nullcontext()
    if case.place == IN_PLACE and expected is not None:
        place = nullcontext(x)
    elif case.place in places and expected is not None:
        place = places[case.place](expected.shape, expected.dtype)
    complaints, digest = [], b""
    try:
        with place as out:
            try:
                result = made.call(x, out)
            except (UnsupportedError, MismatchError) as error:
                return "", b"", str(error)
            if expected is None:
                if result is not None:
                    complaints.append(f"wanted None, got {type(result).__name__}")
            else:
                complaints += _wrong(result, expected, out, kind)
                same = COLLECTIVES[case.collective].same and not complaints
                digest = digest_of(_on_host(result)) if same else b""
            if out is not x and not equal(_on_host(x), made.x):
                complaints.append("the input was changed")
    except Exception as error:  # one that comes on all ranks need not end the test
        complaints.append(f"{type(error).__name__}: {error}")
    return "; ".join(complaints), digest, ""


def _wrong(result: Any, expected: Array, out: Any, kind: Any) -> list[str]:
    if type(result) is not kind:
        return [f"the result is a {type(result).__name__}"]
    if out is not None and result is not out:
        return ["out was given, and something else returned"]
    if (result.dtype, result.shape) != (expected.dtype, expected.shape):
        return [
            f"got {result.dtype} {result.shape}, "
            f"wanted {expected.dtype} {expected.shape}"
        ]
    # What is there now, without a copy that would wait for a stream first.
    got = now(result)
    if not equal(got, expected):
        wrong = np.flatnonzero(~np.atleast_1d(got == expected))
        first = int(wrong[0])
        return [
            f"{len(wrong)} of {got.size} wrong, the first is number {first}: got "
            f"{got.reshape(-1)[first]}, wanted {expected.reshape(-1)[first]}"
        ]
    return []


def now(array: Any) -> Array:
    """Return what is in an array's memory at this moment, whatever is pending on it."""
    view = array if isinstance(array, np.ndarray) else getattr(array, "_view", None)
    return array.get() if view is None else view.copy()


def _on_host(array: Any) -> Array:
    return array if isinstance(array, np.ndarray) else array.get()


def impossible(comm: Communicator, case: Case) -> str:
    """Return why the host's algorithm of a case cannot be had; empty when it can."""
    if case.algorithm == "native":
        return native.crash(case.collective, comm.topology)
    return ""
