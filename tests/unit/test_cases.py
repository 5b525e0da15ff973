"""The matrix of calls covers what is advertised, and finds wrong results."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from harness.arrays import DTYPES, KIND_OF, LAYOUTS, PLACES, values
from harness.cases import CELLS, FLOORS, cases, has_result, ops_of, run
from harness.makers import COLLECTIVES, SHAPES, Case
from harness.threads import run_ranks

import collectives


def quick(size):
    return [case for cell in CELLS for case in cases(*cell, full=False, size=size)]


def test_every_advertised_collective_and_algorithm_has_cells():
    assert set(COLLECTIVES) == set(collectives.ALGORITHMS)
    assert {cell[:2] for cell in CELLS} == {
        (collective, algorithm)
        for collective, algorithms in collectives.ALGORITHMS.items()
        for algorithm in algorithms
    }


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_quick_cases_reach_every_cell(size):
    chosen = quick(size)
    assert {
        (case.collective, case.algorithm, case.dtype, case.op) for case in chosen
    } == {(*cell, op) for cell in CELLS for op in ops_of(cell[0], cell[2])}
    with_result = [case for case in chosen if has_result(case)]
    assert {
        (case.collective, case.algorithm, case.dtype, case.layout)
        for case in with_result
    } == {(*cell, layout) for cell in CELLS for layout in LAYOUTS}
    for few, full in FLOORS.values():
        assert few <= len(with_result) < 1.1 * few, "keep the floor near what there is"
        assert full > 20 * few
    assert {(case.collective, case.shape, case.place) for case in chosen} >= set(
        product(COLLECTIVES, SHAPES, ("new", *PLACES))
    )
    assert {(case.shape, case.layout) for case in chosen} >= {
        (shape, layout)
        for shape, layout in product(SHAPES, LAYOUTS)
        if layout != "Fortran" or len(SHAPES[shape](2)) > 1
    }
    for collective in ("reduce", "broadcast"):
        turns = {case.turn for case in chosen if case.collective == collective}
        assert turns == set(range(size))


def test_the_full_cases_contain_the_quick_ones():
    for cell in CELLS[:: len(CELLS) // 20]:
        full, few = (
            {replace(case, turn=0) for case in cases(*cell, full=full, size=3)}
            for full in (True, False)
        )
        assert few <= full
        assert len(full) > 10 * len(few)


@pytest.mark.parametrize("name", KIND_OF)
def test_values_differ_by_rank_and_position(name):
    """By as much as the dtype allows: no rank's block looks like another's."""
    per_rank = [values(name, "sum", rank, (40,)) for rank in range(5)]
    for rank, one in enumerate(per_rank):
        for other in per_rank[:rank]:
            assert (one != other).any()
        assert (one[:20] != one[20:]).any()


def test_kinds_know_all_dtypes():
    assert sum(len(names) for names in DTYPES.values()) == len(KIND_OF)


CASE = Case(
    "all_reduce", "ring", "float32", "sum", "C", "one segment", "new"
)  # fmt: skip


class Tampered:
    """A communicator of one rank whose result is changed on its way out."""

    rank, size = 0, 1

    def __init__(self, change):
        self._change = change

    def all_reduce(self, x, op, out, algorithm):
        result = x.copy() if out is None else out
        result[...] = x
        return self._change(x, result)


def set_first(array):
    array.flat[0] += 1
    return array


def touch_neighbour(out):
    np.ndarray(1, out.dtype, out.base, offset=0)[:] = 99
    return out


@pytest.mark.parametrize(
    ("change", "case", "complaint"),
    [
        (lambda x, out: out, CASE, ""),
        (lambda x, out: set_first(out), CASE, "1 of 40 wrong, the first is number 0"),
        (lambda x, out: out.T, CASE, "wanted float32 (5, 8)"),
        (lambda x, out: out.astype(float), CASE, "got float64"),
        (lambda x, out: out.tolist(), CASE, "the result is a list"),
        (lambda x, out: (set_first(x), out)[1], CASE, "the input was changed"),
        (
            lambda x, out: out.copy(),
            replace(CASE, place="view"),
            "something else returned",
        ),
        (
            lambda x, out: touch_neighbour(out),
            replace(CASE, place="contiguous"),
            "a neighbour was touched",
        ),
        (
            lambda x, out: out,
            replace(CASE, algorithm="native", op="max"),
            "was not refused",
        ),
    ],
)
def test_what_is_wrong_is_told(change, case, complaint):
    told, _ = run(Tampered(change), case)
    assert complaint in told
    assert bool(told) == bool(complaint)


@pytest.mark.parametrize("size", [1, 3])
def test_a_case_runs(size):
    told = run_ranks(size, lambda comm: run(comm, CASE))
    assert {complaint for complaint, _ in told} == {""}
    assert len({digest for _, digest in told}) == 1
