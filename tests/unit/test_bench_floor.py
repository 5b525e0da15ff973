import numpy as np
import pytest

from collectives.bench.case import IN_PLACE, ORDINARY, OUT_OF_PLACE, Form, Size
from collectives.bench.cases import CASES
from collectives.bench.floor import adding, moved

# As in docs/bench.md: in place, out of place, by the number of ranks n.
FORMULAS = {
    "all_reduce": (lambda n: 2 * n, lambda n: 2 * n),
    "all_reduce_many": (lambda n: 2 * n, lambda n: 2 * n),
    "reduce": (lambda n: n + 1, lambda n: n + 1),
    "reduce_scatter": (lambda n: n + 1, lambda n: n + 1),
    "scan": (lambda n: 2 * n - 1, lambda n: 2 * n),
    "exclusive_scan": (lambda n: 2 * n - 1, lambda n: 2 * n - 1),
    "broadcast": (lambda n: n, lambda n: n + 1),
    "broadcast_many": (lambda n: n, lambda n: n + 1),
    "all_gather": (lambda n: n, lambda n: n + 1),
    "gather": (lambda n: 2 * (n - 1) / n, lambda n: 2),
    "scatter": (lambda n: 2 * (n - 1) / n, lambda n: 2),
    "all_to_all": (lambda n: 2 * (n - 1), lambda n: 2 * n),
    "send": (None, lambda n: 2),
    "exchange": (None, lambda n: 2 * n),
    "barrier": (lambda n: 0, None),
}


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("collective", CASES)
def test_bytes_that_must_move_are_those_of_the_documented_formulas(collective, ranks):
    case = CASES[collective]
    for place, formula in zip(
        (IN_PLACE, OUT_OF_PLACE), FORMULAS[collective], strict=True
    ):
        if formula is not None:
            found = moved(case, ranks, 1, place, ORDINARY)
            assert found == pytest.approx(formula(ranks)), place


def test_a_shared_result_is_stored_once_a_host_and_read_by_all_where_touched():
    case = CASES["all_reduce"]
    shared, touched = Form(True, True), Form(True, True, True)
    assert moved(case, 4, 1, OUT_OF_PLACE, shared) == 4 + 1
    assert moved(case, 4, 2, OUT_OF_PLACE, shared) == 4 + 2
    assert moved(case, 4, 1, OUT_OF_PLACE, touched) == 4 + 1 + 4


def test_additions_work_on_that_many_bytes_of_any_dtype():
    memory = np.full(9, 1, np.int16), np.full(9, 2, np.int16)
    added = adding(memory, Size(6, 3))
    added.call()
    assert memory[0].tolist() == [3] * 3 + [1] * 6
    added.rewrite()
    assert memory[0].tolist() == [0] * 3 + [1] * 6
    assert memory[1].tolist() == [2] * 9


def test_a_form_is_named_by_what_is_unlike_ordinary_arrays():
    assert str(ORDINARY) == ""
    assert str(Form(registered=True, touched=True)) == "registered touched"
