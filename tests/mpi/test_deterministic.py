"""With `deterministic` the bits depend on nothing but the inputs."""

import numpy as np
import pytest
from harness.cases import impossible

from collectives import ALGORITHMS
from collectives.algorithms import TABLE

DTYPES = ["float32", "float64", "float16", "complex64"]


def contribution(rank, dtype, length=5000):
    numbers = np.random.default_rng([7, rank]).standard_normal(length)
    return (numbers * 8.0 ** (rank % 3)).astype(dtype)


def in_order(comm, dtype):
    """Add up from left to right, 16-bit floats in float32."""
    work = np.float32 if dtype == "float16" else dtype
    total = contribution(0, dtype).astype(work)
    for rank in range(1, comm.size):
        total = total + contribution(rank, dtype).astype(work)
    return total.astype(dtype)


def _is_in_order(comm, name):
    row = TABLE["all_reduce"][name]
    if row.needs_window and len(comm.topology.hosts) > 1:
        return False
    return row.in_order and not impossible(comm, "all_reduce", name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_are_those_of_adding_in_rank_order(comm, dtype):
    strict = comm.with_options(deterministic=True)
    x, wanted = contribution(comm.rank, dtype), in_order(comm, dtype).tobytes()
    names = [
        name
        for name in ALGORITHMS["all_reduce"]
        if name == "auto" or _is_in_order(comm, name)
    ]
    assert len(names) > 2
    for name in names:
        assert strict.all_reduce(x, algorithm=name).tobytes() == wanted, name
        for segment_bytes in (64, 1 << 20):
            cut = strict.with_options(segment_bytes=segment_bytes)
            assert cut.all_reduce(x, algorithm=name).tobytes() == wanted
    for low, high in ((0, 1), (1, 4097), (4999, 5000)):  # size and position
        part = strict.all_reduce(x[low:high].copy())
        assert part.tobytes() == in_order(comm, dtype)[low:high].tobytes()
    for bytes_per_pack in (0, 1, 1 << 12):
        pieces = np.array_split(x, 37)
        many = strict.all_reduce_many(pieces, bytes_per_pack=bytes_per_pack)
        assert np.concatenate(many).tobytes() == wanted
    assert strict.start_all_reduce(x).wait().tobytes() == wanted
    block = strict.reduce_scatter(x)
    assert strict.all_gather(block).tobytes() == wanted
    whole = strict.reduce(x, root=comm.size - 1)
    if comm.rank == comm.size - 1:
        assert whole.tobytes() == wanted


def test_a_function_is_used_in_rank_order(comm):
    def keep_left(a, b):
        return a

    def keep_right(a, b):
        return b

    x = np.full(100, comm.rank)
    for name in ("auto", "chain", "pairwise"):
        assert (comm.all_reduce(x, keep_left, algorithm=name) == 0).all()
        assert (comm.all_reduce(x, keep_right, algorithm=name) == comm.size - 1).all()


@pytest.mark.ranks(2, 3)
def test_a_function_that_fails_on_one_rank_is_the_same_error_everywhere(comm):
    def fail(a, b):
        if comm.rank == 1:
            raise ZeroDivisionError("no")
        return a + b

    with pytest.raises(TypeError, match="rank 1: ZeroDivisionError: no"):
        comm.all_reduce(np.ones(3), fail)
    assert comm.all_reduce(1).item() == comm.size


@pytest.mark.ranks(2)
def test_a_function_cannot_write_into_the_callers_array(comm):
    x = np.ones(3)
    with pytest.raises(TypeError, match="read-only"):
        comm.all_reduce(x, lambda a, b: np.add(a, b, out=b))
    assert x.tolist() == [1, 1, 1]
