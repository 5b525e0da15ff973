"""What numbers can do: NaN, infinity, rounding, overflow, and always the same bits."""

from itertools import product
from math import fsum

import ml_dtypes
import numpy as np
import pytest
from harness.arrays import DTYPES, digest_of, dtype_of

import collectives

ALGORITHMS = collectives.ALGORITHMS["all_reduce"]
OURS = ("ring", "recursive_doubling")
FLOATS = DTYPES["narrow"] + DTYPES["float"]


@pytest.fixture(params=ALGORITHMS)
def all_reduce(request, comm):
    """Return `all_reduce` by one of the algorithms."""

    def all_reduce(x, op="sum"):
        return comm.all_reduce(x, op, algorithm=request.param)

    all_reduce.refuses_order = request.param == "native"
    return all_reduce


def same_bits(comm, arrays):
    """Tell whether these arrays have the same bits on all ranks."""
    digests = [digest_of(array) for array in arrays]
    return all(theirs == digests for theirs in comm.all_gather_object(digests))


def test_min_and_max_hand_nan_on_from_any_rank(comm, all_reduce):
    """Position r is NaN on rank r alone; the last position nowhere."""
    for name, op in product(FLOATS, ("min", "max")):
        x = np.zeros(comm.size + 1, dtype_of(name))
        x[comm.rank] = np.nan
        if all_reduce.refuses_order:
            with pytest.raises(collectives.UnsupportedError, match="NaN"):
                all_reduce(x, op)
        else:
            y = all_reduce(x, op)
            assert (y != y).tolist() == [True] * comm.size + [False], (name, op)


def test_infinities_and_signs(comm, all_reduce):
    last = comm.rank == comm.size - 1
    for name in ("float16", "bfloat16", *DTYPES["float"]):
        x = [np.inf, -np.inf if last else 1, np.inf if last else -np.inf]
        y = all_reduce(np.array(x, dtype_of(name)))
        third = np.inf if comm.size == 1 else np.nan
        np.testing.assert_array_equal(y.astype(float), [np.inf, -np.inf, third])


def test_subnormal_numbers_are_not_flushed_to_zero(comm, all_reduce):
    for name in ("float32", "float64"):
        tiny = np.finfo(name).smallest_subnormal
        y = all_reduce(np.full(9, tiny))
        assert (y == tiny * comm.size).all()
        assert (y > 0).all()


def test_narrow_floats_are_added_up_in_float32_and_rounded_once(comm, all_reduce):
    """In its own arithmetic `large + 1 + 1 + …` would never get beyond `large`."""
    for name, large in (("float16", 2048), ("bfloat16", 256), ("float8_e4m3fn", 16)):
        dtype = dtype_of(name)
        x = np.full(7, large if comm.rank == 0 else 1, dtype)
        total = np.float32(large + comm.size - 1)
        assert (all_reduce(x) == total.astype(dtype)).all()
        mean = (total / np.float32(comm.size)).astype(dtype)
        assert (all_reduce(x, "mean") == mean).all()


def test_a_mean_is_finite_where_a_sum_in_half_precision_is_not(all_reduce):
    x = np.full(5, 60000, np.float16)
    assert (all_reduce(x, "mean") == x).all()


def test_means_of_integers_are_float64_and_do_not_wrap(all_reduce):
    for name in ("int8", "int64", "uint64"):
        y = all_reduce(np.full(5, np.iinfo(name).max), "mean")
        assert y.dtype == np.float64
        np.testing.assert_allclose(y, np.iinfo(name).max, rtol=1e-15)


def test_sums_of_integers_wrap_as_in_numpy(comm):
    for algorithm, name in product(
        ("auto", *OURS), DTYPES["signed"] + DTYPES["unsigned"]
    ):
        limits = np.iinfo(name)
        y = comm.all_reduce(np.full(1000, limits.max, name), algorithm=algorithm)
        wanted = (comm.size * limits.max - limits.min) % 2**limits.bits + limits.min
        assert set(y.tolist()) == {wanted}, (algorithm, name)


def test_random_numbers_give_the_same_bits_on_all_ranks_and_again(comm, all_reduce):
    random = np.random.default_rng(comm.rank)
    ops = ["sum", "mean", "prod", *(() if all_reduce.refuses_order else ("min", "max"))]
    first, second = [], []
    for name, op, count in product(FLOATS, ops, (1, 7, 3001)):
        x = (random.normal(size=count) / 4).astype(dtype_of(name))
        first.append(all_reduce(x, op))
        second.append(all_reduce(x, op))
    assert same_bits(comm, first)
    assert [*map(digest_of, first)] == [*map(digest_of, second)]


def test_random_sums_are_as_good_as_the_precision(comm, all_reduce):
    for name in DTYPES["float"]:
        x = np.random.default_rng(comm.rank).normal(size=500).astype(name)
        everyone = np.array(comm.all_gather_object(x))
        exact = [fsum(map(float, column)) for column in everyone.T]
        error = np.abs(all_reduce(x).astype(float) - exact)
        unit = max(np.finfo(name).eps, np.finfo(float).eps)  # of `exact` as well
        assert (error <= comm.size * unit * np.abs(everyone).sum(0)).all(), name


@pytest.mark.parametrize("algorithm", OURS)
def test_nan_with_a_payload_gives_the_same_bits_everywhere(comm, algorithm):
    """x86 hands on the first operand's NaN: the order must be the same on all ranks.

    Of the MPI's own reductions Intel MPI's differ here.
    """
    bits = np.arange(64, dtype=np.uint32) + np.uint32(0x7FC00000 + 1000 * comm.rank)
    x = bits.view(np.float32)
    results = [comm.all_reduce(x, op, algorithm=algorithm) for op in ("sum", "prod")]
    assert np.isnan(results).all()
    assert same_bits(comm, results)


@pytest.mark.parametrize("algorithm", OURS)
def test_zeros_of_both_signs_give_the_same_bits_everywhere(comm, algorithm):
    x = np.full(50, -0.0 if comm.rank % 2 else 0.0)
    results = [comm.all_reduce(x, op, algorithm=algorithm) for op in ("min", "max")]
    assert same_bits(comm, results)


@pytest.mark.parametrize("algorithm", collectives.ALGORITHMS["broadcast"])
def test_moving_keeps_every_bit(comm, algorithm):
    """Also of NaN, and of bool bytes that are neither 0 nor 1."""
    for dtype in (np.float32, ml_dtypes.bfloat16, np.uint8, bool, np.longdouble):
        memory = np.random.default_rng(5).integers(0, 256, 480, np.uint8)
        x = memory.view(dtype)
        given = x if comm.rank == 0 else np.zeros_like(x)
        y = comm.broadcast(given, algorithm=algorithm)
        assert y.view(np.uint8).tolist() == memory.tolist()
