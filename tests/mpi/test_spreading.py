"""Agreeing across pretended hosts, and small all-reduces that ride on it."""

import numpy as np
import pytest

from collectives import SHARED, MismatchError

OPS = {"sum": np.add, "max": np.maximum, "prod": np.multiply, "or": np.bitwise_or}
LENGTHS = (0, 1, 7, 1000, 8192)  # of 8 bytes: up to all that may ride


def part(rank, length, dtype):
    """Return small distinct numbers, so that sums and products of few are exact."""
    numbers = (np.arange(length) * 7 + 3 * rank) % 5 - (rank % 2)
    return np.abs(numbers).astype(dtype) if dtype == "u1" else numbers.astype(dtype)


def whole(size, length, dtype, op):
    total = part(0, length, dtype)
    for rank in range(1, size):
        total = OPS[op](total, part(rank, length, dtype))
    return total


@pytest.mark.parametrize(
    ("dtype", "op"),
    [("f8", "sum"), ("f4", "max"), ("i8", "prod"), ("u1", "or"), ("c16", "sum")],
)
def test_what_rides_is_combined_at_the_first_call_and_at_later_ones(ranks, dtype, op):
    kept = []
    for length in LENGTHS:
        x = part(ranks.rank, length, dtype)
        want = whole(ranks.size, length, dtype, op)
        spread = np.repeat(x, 2)[::2]
        for given in (x, spread, x.copy(), spread):
            kept.append((ranks.all_reduce(given, op), want))
        assert ranks.all_reduce(x, op, out=x) is x
        np.testing.assert_array_equal(x, want)
    for result, want in kept:  # none of them is memory of a later call
        np.testing.assert_array_equal(result, want)
        assert result.dtype == want.dtype


def test_narrow_floats_and_means_ride_too(ranks):
    mine = np.float16([1 + ranks.rank, 2048, 0.5])
    mean = np.mean([np.float64([1 + r, 2048, 0.5]) for r in range(ranks.size)], 0)
    for _ in range(3):
        np.testing.assert_array_equal(ranks.all_reduce(mine, "mean"), mean.astype("f2"))
        got = ranks.all_reduce(np.arange(3) + ranks.rank, "mean")
        np.testing.assert_allclose(got, np.arange(3) + (ranks.size - 1) / 2)


def test_a_call_that_differs_on_one_rank_is_refused_everywhere_and_forgotten(ranks):
    if ranks.size == 1:
        pytest.skip("needs two ranks")
    odd = ranks.rank == ranks.size - 1
    for turn in range(4):
        want = ranks.size * (turn + 1.0)
        assert ranks.all_reduce(np.full(3, turn + 1.0))[0] == want
        with pytest.raises(MismatchError, match="shape"):
            ranks.all_reduce(np.ones(4 if odd else 3))
        with pytest.raises(MismatchError, match="disagree"):
            ranks.barrier() if odd else ranks.all_reduce(np.ones(3))
        ranks.broadcast(np.ones(2), root=ranks.size - 1)
        assert ranks.all_reduce(np.full(3, turn + 1.0))[0] == want


def test_who_alone_wants_a_common_result_gives_what_he_has_all_the_same(ranks):
    if len(ranks.topology.hosts) == 1:
        pytest.skip("on one host it is another call")
    want = sum(range(1, ranks.size + 1))
    for odd in range(ranks.size):
        for length in (3, 100_000):
            mine = np.full(length, 1.0 + ranks.rank)
            out = SHARED if ranks.rank == odd else None
            result = ranks.all_reduce(mine, out=out)
            np.testing.assert_array_equal(np.asarray(result), want)
