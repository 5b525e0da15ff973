import math

import ml_dtypes  # noqa: F401  tells NumPy of bfloat16
import numpy as np
import pytest

from collectives.bench.flags import DTYPES
from collectives.bench.patterns import (
    PERIOD,
    UFUNCS,
    count_wrong,
    expected,
    fill,
    pattern,
    spoil,
    steady,
)

PYTHON = {
    "sum": sum,
    "prod": math.prod,
    "min": min,
    "max": max,
    "and": lambda values: values[0] & values[1] & values[2],
    "or": lambda values: values[0] | values[1] | values[2],
    "xor": lambda values: values[0] ^ values[1] ^ values[2],
    "mean": lambda values: sum(values) / 3,
}


ARITHMETIC = ("sum", "mean", "prod", "min", "max")


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        *((op, "int32") for op in UFUNCS),
        *((op, dtype) for op in ARITHMETIC for dtype in ("float32", "float16")),
    ],
)
def test_expected_results_are_those_of_plain_python(op, dtype):
    inputs = [
        pattern(rank, op, dtype, 3)[:50].astype(int).tolist() for rank in range(3)
    ]
    results = [PYTHON[op](values) for values in zip(*inputs, strict=True)]
    assert expected((0, 1, 2), op, dtype, 3)[:50].tolist() == results


@pytest.mark.parametrize("dtype", sorted(set(DTYPES.values())))
def test_sums_are_exact_in_every_order(dtype):
    parts = [pattern(rank, "sum", dtype, 80) for rank in range(80)]
    backwards = parts[-1]
    for part in parts[-2::-1]:
        backwards = backwards + part
    assert np.array_equal(expected(tuple(range(80)), "sum", dtype, 80), backwards)


def test_int8_sums_wrap():
    total = expected(tuple(range(100)), "sum", "int8", 100)
    exact = sum(pattern(rank, "sum", "int64", 100) for rank in range(100))
    assert exact.max() > 127
    assert np.array_equal(total, exact.astype(np.int8))


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        *((op, dtype) for op in UFUNCS for dtype in ("int8", "uint16")),
        *((op, dtype) for op in ARITHMETIC for dtype in ("bfloat16", "float64")),
    ],
)
def test_the_result_of_no_rank_changes_nothing(op, dtype):
    nothing = expected((), op, dtype, 1)
    values = pattern(0, op, dtype, 1)
    assert nothing.dtype == dtype
    assert np.array_equal(UFUNCS[op](nothing, values), values)
    assert np.array_equal(UFUNCS[op](nothing, nothing), nothing)


def filled(count, rank=0, dtype="float32"):
    array = np.empty(count, dtype)
    fill(array, pattern(rank, "sum", dtype, 2))
    return array


def test_a_right_result_has_no_wrong_element():
    assert count_wrong(filled(3 * PERIOD + 5), pattern(0, "sum", "float32", 2)) == 0


@pytest.mark.parametrize("shift", [1, 16, 4096, 1 << 16, 1 << 17])
def test_a_shift_by_a_block_is_seen(shift):
    array = np.roll(filled(1 << 18), shift)
    assert count_wrong(array, pattern(0, "sum", "float32", 2)) > array.size / 2


@pytest.mark.parametrize("start", [1, PERIOD - 1, PERIOD + 3, 5 * PERIOD])
def test_a_part_is_compared_from_where_it_begins(start):
    array, period = filled(7 * PERIOD)[start:], pattern(0, "sum", "float32", 2)
    assert count_wrong(array, period, start) == 0
    assert count_wrong(array, period, start + 1) > array.size / 2
    assert count_wrong(array[1:], period, start) > array.size / 2


def test_the_input_of_another_rank_is_seen():
    assert count_wrong(filled(1000, rank=1), pattern(0, "sum", "float32", 2)) > 500


def test_single_wrong_elements_are_counted():
    array = filled(PERIOD + 10)
    array[[3, PERIOD + 9]] = [np.nan, -1]
    assert count_wrong(array, pattern(0, "sum", "float32", 2)) == 2


@pytest.mark.parametrize("dtype", sorted(set(DTYPES.values())))
def test_spoiled_memory_is_no_result(dtype):
    array = np.empty(100, dtype)
    spoil(array)
    for op in ("sum", "max", "prod"):
        assert count_wrong(array, expected((0, 1), op, dtype, 2)) == 100


@pytest.mark.parametrize("op", ARITHMETIC)
def test_repeated_calls_in_place_stay_finite(op):
    value = np.float32(steady(op))
    for _ in range(1000):
        if op in ("sum", "mean", "prod"):
            value = UFUNCS[op](value, value)
    assert value == steady(op)
