"""Lists of arrays: whatever travels together, each comes out as if alone."""

from contextlib import ExitStack

import numpy as np
import pytest
from harness.arrays import LAYOUTS, PLACES, dtype_of, equal, values
from harness.cases import impossible
from harness.oracle import reduced, result_dtype

import collectives
from collectives import InvalidArgumentError, UnsupportedError

ALGORITHMS = collectives.ALGORITHMS["all_reduce"]
LIMITS = (0, 1, 100, 1 << 40)
LIST = [
    ("float32", (3, 4)),
    ("float16", (5,)),
    ("int32", ()),
    ("float32", ()),
    ("float64", (0, 2)),
    ("bfloat16", (40, 3)),
    ("float64", (17,)),
    ("uint64", (2, 2)),
    ("float32", (1000,)),
    ("float8_e4m3fn", (3,)),
    ("float32", (1,)),
]


def contributions(comm, op):
    """Return each rank's list."""
    return [
        [values(name, op, rank, shape) for name, shape in LIST]
        for rank in range(comm.size)
    ]


def check(results, everyone, op):
    assert type(results) is list
    assert len(results) == len(LIST)
    for (name, shape), got, *parts in zip(LIST, results, *everyone, strict=True):
        wanted = reduced(name, op, parts)
        assert (got.dtype, got.shape) == (result_dtype(name, op), shape)
        assert equal(got, wanted), f"{name} {shape}: {got} instead of {wanted}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bytes_per_pack", LIMITS)
def test_new_results(comm, algorithm, bytes_per_pack):
    if why := impossible(comm, "all_reduce", algorithm):
        with pytest.raises(UnsupportedError, match=why):
            comm.all_reduce_many([np.ones(2)], algorithm=algorithm)
        return
    for op in ("sum", "mean", "prod"):
        everyone = contributions(comm, op)
        mine = everyone[comm.rank]
        before = [array.copy() for array in mine]
        results = comm.all_reduce_many(
            mine, op, bytes_per_pack=bytes_per_pack, algorithm=algorithm
        )
        check(results, everyone, op)
        assert all(equal(a, b) for a, b in zip(mine, before, strict=True))


@pytest.mark.parametrize("bytes_per_pack", LIMITS)
def test_order(comm, bytes_per_pack):
    for op in ("min", "max"):
        everyone = contributions(comm, op)
        results = comm.all_reduce_many(
            everyone[comm.rank], op, bytes_per_pack=bytes_per_pack
        )
        check(results, everyone, op)


@pytest.mark.parametrize("bytes_per_pack", LIMITS)
def test_in_place(comm, bytes_per_pack):
    everyone = contributions(comm, "sum")
    mine = [array.copy() for array in everyone[comm.rank]]
    results = comm.all_reduce_many(mine, out=mine, bytes_per_pack=bytes_per_pack)
    assert all(got is one for got, one in zip(results, mine, strict=True))
    check(mine, everyone, "sum")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bytes_per_pack", [0, 1])
def test_layouts_and_places(comm, layout, bytes_per_pack):
    everyone = contributions(comm, "sum")
    mine = [LAYOUTS[layout](array) for array in everyone[comm.rank]]
    for place in PLACES.values():
        with ExitStack() as stack:
            outs = [
                stack.enter_context(place(shape, dtype_of(name)))
                for name, shape in LIST
            ]
            results = comm.all_reduce_many(
                mine, out=outs, bytes_per_pack=bytes_per_pack
            )
            assert all(got is out for got, out in zip(results, outs, strict=True))
            check(results, everyone, "sum")


def test_an_empty_list(comm):
    assert comm.all_reduce_many([]) == []


def test_many_small_arrays(comm):
    arrays = [np.full(place % 5, place + comm.rank) for place in range(500)]
    results = comm.all_reduce_many(arrays)
    shift = sum(range(comm.size))
    for place, got in enumerate(results):
        assert got.tolist() == [place * comm.size + shift] * (place % 5)


def test_results_do_not_share_memory(comm):
    """A result that is kept must not change when another one does."""
    results = comm.all_reduce_many([np.ones(4), np.ones(4), np.ones(4)])
    results[0][...] = -1
    assert results[1].tolist() == results[2].tolist() == [comm.size] * 4


@pytest.mark.parametrize("bytes_per_pack", [0, 1])
def test_targets_may_be_each_others_inputs(comm, bytes_per_pack):
    """As if all inputs had been read before the first result was written."""
    a, b = np.full(3, 1.0), np.full(3, 10.0)
    comm.all_reduce_many([a, b], out=[b, a], bytes_per_pack=bytes_per_pack)
    assert a.tolist() == [10 * comm.size] * 3
    assert b.tolist() == [comm.size] * 3


def test_what_cannot_be_reduced_is_refused_before_anything_moves(comm):
    out = [np.full(2, -1.0), np.zeros(2, bool)]
    with pytest.raises(UnsupportedError, match="op sum of dtype bool"):
        comm.all_reduce_many([np.ones(2), np.ones(2, bool)], out=out)
    assert out[0].tolist() == [-1, -1]
    with pytest.raises(InvalidArgumentError, match="unknown algorithm 'rnig'"):
        comm.all_reduce_many([np.ones(2)], algorithm="rnig")
    with pytest.raises(InvalidArgumentError, match="unknown op 'median'"):
        comm.all_reduce_many([np.ones(2)], "median")
    comm.barrier()


def test_a_wrong_name_is_an_error_even_with_nothing_to_do(comm):
    with pytest.raises(InvalidArgumentError, match="unknown op 'median'"):
        comm.all_reduce_many([], "median")
    with pytest.raises(InvalidArgumentError, match="unknown algorithm 'rnig'"):
        comm.all_reduce_many([], algorithm="rnig")
    comm.barrier()
