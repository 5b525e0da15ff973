"""Different calls under real MPI: the same error everywhere, nothing written."""

import numpy as np
import pytest
from harness.mismatches import MISMATCHES, check_text, disagree

import collectives
from collectives.algorithms import TABLE


@pytest.fixture(params=["board", "messages"])
def ranks(request, comm):
    """Return a communicator by each of the two ways of agreeing."""
    if request.param == "board":
        return comm
    return request.getfixturevalue("without_shared_memory")


@pytest.mark.ranks(2, 3, 4, 5)
@pytest.mark.parametrize("name", MISMATCHES)
def test_all_ranks_raise_the_same(ranks, name):
    for odd in {0, ranks.size - 1}:
        texts = ranks.all_gather_object(disagree(ranks, name, odd))
        assert len(set(texts)) == 1, texts
        check_text(name, odd, texts[0], ranks.size)


@pytest.mark.ranks(2, 3, 4, 5)
def test_calls_in_another_order_are_a_mismatch_each(ranks):
    def one():
        ranks.all_reduce(np.ones(2))

    def two():
        ranks.barrier()

    for call in (two, one) if ranks.rank == 1 else (one, two):
        with pytest.raises(collectives.MismatchError, match="disagree on collective"):
            call()
    assert ranks.all_reduce(1.0) == ranks.size


def test_what_is_wrong_everywhere_is_told_as_such(ranks):
    with pytest.raises(collectives.InvalidArgumentError, match="unknown op 'median'"):
        ranks.all_reduce(np.ones(2), "median")
    assert ranks.all_reduce(1.0) == ranks.size


def test_results_are_right_without_shared_memory(without_shared_memory):
    ranks = without_shared_memory
    for algorithm in collectives.ALGORITHMS["all_reduce"]:
        row = TABLE["all_reduce"].get(algorithm)
        if row and ranks.size > 1 and (row.needs_window or row.host_windows):
            with pytest.raises(collectives.UnsupportedError, match="memory"):
                ranks.all_reduce(1.0, algorithm=algorithm)
            continue
        x = np.arange(5000.0) + ranks.rank
        ranks.all_reduce(x, out=x, algorithm=algorithm)
        total = ranks.size * np.arange(5000.0) + sum(range(ranks.size))
        np.testing.assert_array_equal(x, total)
