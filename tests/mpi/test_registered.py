"""Arrays in the memory of a host: right wherever they lie, and never read too late."""

import time
from hashlib import blake2b

import numpy as np
import pytest
from harness.arrays import dtype_of, equal, values
from harness.oracle import reduced, result_dtype

import collectives
from collectives import (
    SHARED,
    InvalidArgumentError,
    MismatchError,
    UnsupportedError,
)

SEGMENT = 1 << 10
SIZES = (1, 2, 3, 1000, 40_000)
LARGE = 700_001

DTYPES = {
    "float32": ("sum", "mean", "max"),
    "float64": ("sum", "prod"),
    "float16": ("sum", "mean"),
    "bfloat16": ("sum",),
    "int64": ("sum", "mean", "min", "xor"),
    "uint8": ("sum", "or"),
    "complex64": ("sum", "mean"),
    "bool": ("and", "or", "xor", "max"),
}
CASES = [(dtype, op) for dtype, ops in DTYPES.items() for op in ops]
SMALL = [("float32", "sum"), ("float16", "mean"), ("int64", "mean")]

# Which ranks' arrays are registered.
ALL = {"all": lambda rank: True}
MIXED = {
    "rank 0": lambda rank: rank == 0,
    "all but rank 0": lambda rank: rank > 0,
    "odd": lambda rank: rank % 2 == 1,
}


def spare(comm, size, dtype, registered, offset=0):
    """Return an array, registered or not, that begins `offset` behind another one."""
    make = comm.empty if registered else np.empty
    return make(size + offset, dtype)[offset:]


def contributions(comm, dtype, op, size):
    return [values(dtype, op, rank, (size,)) for rank in range(comm.size)]


def given(comm, dtype, op, size, registered, offset=0):
    """Return this rank's input, and what must come out."""
    everyone = contributions(comm, dtype, op, size)
    x = spare(comm, size, dtype_of(dtype), registered, offset)
    x[:] = everyone[comm.rank]
    return x, reduced(dtype, op, everyone)


# --- all forms of a call -------------------------------------------------------------


def new(comm, x, op, out_registered, **how):
    return comm.all_reduce(x, op, **how)


def in_place(comm, x, op, out_registered, **how):
    result = comm.all_reduce(x, op, out=x, **how)
    assert result is x
    return result


def beside(comm, x, op, out_registered, **how):
    dtype = np.dtype(float) if op == "mean" and x.dtype.kind in "iu" else x.dtype
    out = spare(comm, x.size, dtype, out_registered(comm.rank), 3 * comm.rank)
    result = comm.all_reduce(x, op, out=out, **how)
    assert result is out
    return result


def shared(comm, x, op, out_registered, **how):
    result = comm.all_reduce(x, op, out=SHARED, **how)
    assert isinstance(result, collectives.SharedResult)
    return result.array


FORMS = {"new": new, "in place": in_place, "beside": beside, "shared": shared}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", {**ALL, **MIXED})
@pytest.mark.parametrize(("dtype", "op"), CASES)
def test_all_reduce(comm, form, ranks, dtype, op):
    registered = {**ALL, **MIXED}[ranks]
    if form == "in place" and result_dtype(dtype, op) != dtype_of(dtype):
        x, _ = given(comm, dtype, op, 3, registered(comm.rank), 0)
        with pytest.raises(collectives.InvalidArgumentError, match="out has dtype"):
            comm.all_reduce(x, op, out=x)
        return
    rounds = comm.with_options(segment_bytes=SEGMENT)
    for one, sizes in ((comm, SIZES), (rounds, (3, 3000))):
        for size in sizes:
            offset = comm.rank + size % 2
            mine = registered(comm.rank)
            x, wanted = given(one, dtype, op, size, mine, offset)
            before = x.copy()
            got = FORMS[form](one, x, op, lambda rank: not registered(rank))
            assert got.dtype == wanted.dtype
            assert equal(got, wanted), (size, one.options.segment_bytes)
            assert got is x or equal(x, before)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("inputs", "outs"), [(0, 1), (1, 1), (1, 0), (0, 0)])
@pytest.mark.parametrize("algorithm", ["auto", "shared"])
def test_large_arrays(comm, form, inputs, outs, algorithm):
    for dtype, op in SMALL:
        if form == "in place" and op == "mean" and dtype == "int64":
            continue
        x, wanted = given(comm, dtype, op, LARGE, bool(inputs), comm.rank)
        got = FORMS[form](comm, x, op, lambda rank: bool(outs), algorithm=algorithm)
        assert equal(got, wanted)


@pytest.mark.parametrize("out_on", [0, 1])
def test_results_that_are_registered_on_some_ranks_only(comm, out_on):
    for size in (5, 100_000):
        x, wanted = given(comm, "float32", "sum", size, True)
        got = beside(comm, x, "sum", lambda rank: rank % 2 == out_on)
        assert equal(got, wanted)


@pytest.mark.parametrize("registered", [True, False])
def test_layouts_in_registered_memory(comm, registered):
    """Transposed, backwards, unaligned: whatever is no flat array is copied."""
    make = comm.empty if registered else np.empty
    size, wanted = 60, sum(range(comm.size)) + np.arange(60.0) * comm.size
    memory = make(8 * size + 8, np.uint8)
    for view in (
        make((6, 20))[:, ::2],
        make((10, 6)).T,
        make(size)[::-1],
        memory[3 : 8 * size + 3].view(float),
    ):
        shaped = np.arange(60.0).reshape(view.shape)
        view[...] = shaped + comm.rank
        comm.all_reduce(view, out=view)
        assert (view == wanted.reshape(view.shape)).all()


@pytest.mark.parametrize("size", [10, 50_000])
def test_input_and_result_that_overlap(comm, size):
    memory = comm.empty(size + 7)
    x, out = memory[:size], memory[7:]
    x[:] = np.arange(size) + comm.rank
    comm.all_reduce(x, out=out)
    assert (out == np.arange(size) * comm.size + sum(range(comm.size))).all()


def test_other_collectives_take_registered_arrays(comm):
    size, p = 50_000, comm.size
    x = comm.full(size, comm.rank + 1.0)
    x += np.arange(size)
    total = p * np.arange(size) + p * (p + 1) / 2
    root = p - 1
    out = comm.empty(size)
    got = comm.reduce(x, root=root, out=out)
    assert (got is None) if comm.rank != root else equal(got, total)
    assert equal(comm.broadcast(x, root=root, out=out), np.arange(size) + root + 1.0)
    every = comm.empty((p, size))
    comm.all_gather(x.reshape(1, size), out=every)
    assert (every == np.arange(size) + np.arange(1.0, p + 1)[:, None]).all()
    comm.all_reduce_many([x, out], out=[out, x])
    assert equal(out, total)
    assert equal(x, p * (np.arange(size) + root + 1.0))


# --- who may touch what, when --------------------------------------------------------


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", ["auto", "shared", "direct"])
def test_who_overwrites_an_input_at_once_changes_nobodys_result(comm, form, algorithm):
    if form == "shared" and algorithm == "direct":
        with pytest.raises(collectives.UnsupportedError, match="goes by shared"):
            comm.all_reduce(comm.zeros(3), out=SHARED, algorithm=algorithm)
        return
    for slow in range(comm.size):
        for size in (100, 100_000):
            x, wanted = given(comm, "float64", "sum", size, True)
            if comm.rank == slow:
                time.sleep(0.01)
            got = FORMS[form](comm, x, "sum", lambda rank: True, algorithm=algorithm)
            if form != "in place":
                x[:] = -1
            if comm.rank == slow:
                time.sleep(0.005)
            assert equal(got, wanted)
            comm.barrier()
            if form == "in place":
                x[:] = -1


@pytest.mark.ranks(2, 3)
def test_arrays_may_go_while_others_still_work(comm):
    for step in range(50):
        x = comm.full(20_000 + step, comm.rank + step)
        got = comm.all_reduce(x, out=comm.empty(x.shape))
        if step % comm.size == comm.rank:
            time.sleep(0.001)
        del x
        other = comm.full(20_000 + step, -1.0)
        assert (got == comm.size * step + sum(range(comm.size))).all()
        del got, other


def test_memory_goes_back(comm):
    comm.all_reduce(comm.zeros(10))
    comm.empty(1)
    arena = comm._group.arena
    if arena is None:
        pytest.skip("one rank without an MPI has no arena")
    before = arena.used_bytes
    for step in range(30):
        x = comm.zeros(100_000 + step)
        comm.all_reduce(x, out=x)
        comm.all_reduce_many([x, x + 1], out=[x, comm.empty(x.shape)])
        del x
    comm.empty(1)
    assert arena.used_bytes <= before + 1024


def test_more_memory_than_there_is_is_an_error_on_that_rank_alone(comm):
    if comm.rank == 0 and comm._group.arena is not None:
        with pytest.raises(MemoryError):
            comm.empty(1 << 40, np.uint8)
    x = comm.full(1000, comm.rank)
    assert (comm.all_reduce(x) == sum(range(comm.size))).all()
    assert comm.all_reduce(x, out=SHARED).array[0] == sum(range(comm.size))


# --- results that are common to a host -----------------------------------------------


@pytest.mark.one_host
@pytest.mark.parametrize("size", [3, 100_000])
def test_a_shared_result_is_there_until_the_second_next_call(comm, size):
    def call(number):
        return comm.all_reduce(np.full(size, float(number)), "mean", out=SHARED)

    one, two = call(1), call(2)
    assert (one.array == 1).all()
    if comm.size > 1:
        with pytest.raises(ValueError, match="read-only"):
            one.array[0] = 5
        three = call(3)
        for use in (lambda: one.array, one.copy, lambda: np.asarray(one)):
            with pytest.raises(InvalidArgumentError, match="second next call"):
                use()
        assert (two.array == 2).all()
        assert (three.array == 3).all()


@pytest.mark.one_host
@pytest.mark.ranks(2, 3, 4)
def test_a_shared_result_is_one_copy(comm):
    result = comm.all_reduce(np.ones(1000), out=SHARED)
    places = comm.all_gather_object(
        result.array.ctypes.data - comm._group.arena.address
    )
    assert len(set(places)) == 1


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("size", [3, 100_000])
def test_full_checks_show_who_keeps_a_result_for_too_long(comm, size):
    full = comm.with_options(check="full")
    kept = full.all_reduce(np.ones(size), out=SHARED).array
    full.all_reduce(np.ones(size), out=SHARED)
    assert (kept == comm.size).all()
    comm.barrier()
    full.all_reduce(np.ones(size), out=SHARED)
    assert np.isnan(kept).all()


@pytest.mark.ranks(3, 4)
def test_shared_results_of_several_groups_at_once(comm):
    half, turned = comm.split(comm.rank % 2), comm.group(range(comm.size)[::-1])
    with half, turned:
        for step in range(6):
            results = [
                one.all_reduce(np.full(5000, comm.rank + step), out=SHARED)
                for one in (comm, half, turned)
            ]
            mates = [r for r in range(comm.size) if r % 2 == comm.rank % 2]
            sums = [
                sum(ranks) + step * len(ranks)
                for ranks in (range(comm.size), mates, range(comm.size))
            ]
            for result, total in zip(results, sums, strict=True):
                assert (result.array == total).all()


@pytest.mark.ranks(2, 3)
def test_where_there_can_be_no_shared_result_all_ranks_are_told(comm):
    x = np.ones(100)
    with pytest.raises(UnsupportedError, match="function as op"):
        comm.all_reduce(x, np.add, out=SHARED)
    with pytest.raises(UnsupportedError, match="by ring; it goes by shared"):
        comm.all_reduce(x, out=SHARED, algorithm="ring")
    with comm.join(), pytest.raises(UnsupportedError, match="inside a join"):
        comm.all_reduce(x, out=SHARED)
    with pytest.raises(UnsupportedError, match="op sum of dtype bool"):
        comm.all_reduce(np.ones(3, bool), out=SHARED)
    assert comm.all_reduce(x, out=SHARED).array[0] == comm.size


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("size", [3, 100_000])
def test_who_alone_wants_a_shared_result_is_a_mismatch(comm, size):
    for odd in range(comm.size):
        with pytest.raises(MismatchError, match="SHARED"):
            comm.all_reduce(np.ones(size), out=SHARED if comm.rank == odd else None)
        assert (comm.all_reduce(np.ones(size)) == comm.size).all()
        assert comm.all_reduce(np.ones(size), out=SHARED).array[-1] == comm.size


@pytest.mark.ranks(2, 3)
def test_no_memory_for_a_shared_result_is_the_same_error_everywhere(comm, monkeypatch):
    group = comm.split(0)
    with group:
        one = group.all_reduce(np.ones(1000), out=SHARED)
        two = group.all_reduce(np.full(1000, 2.0), out=SHARED)
        with monkeypatch.context() as patch:
            patch.setattr(group._group.arena, "carve", no_memory)
            with pytest.raises(UnsupportedError, match="no memory for a SharedResult"):
                group.all_reduce(np.ones(100_000), out=SHARED)
        with pytest.raises(InvalidArgumentError):
            _ = one.array
        assert (two.array == 2 * comm.size).all()
        three = group.all_reduce(np.full(100_000, 3.0), out=SHARED)
        assert (three.array == 3 * comm.size).all()


def no_memory(nbytes):
    raise MemoryError("a test")


# --- packs ---------------------------------------------------------------------------

SHAPES = [
    ("float32", (3, 4)),
    ("float64", ()),
    ("float32", (0, 2)),
    ("float16", (17,)),
    ("int32", (1000,)),
    ("float64", (2, 2)),
    ("float32", (30_000,)),
    ("complex64", (5,)),
]


def fill(arrays, comm, step):
    for place, array in enumerate(arrays):
        array[...] = place + 2 * comm.rank + step


def check_lists(arrays, comm, step):
    for place, array in enumerate(arrays):
        total = comm.size * (place + step) + 2 * sum(range(comm.size))
        assert array.shape == SHAPES[place][1]
        assert array.dtype == SHAPES[place][0]
        assert (array == total).all(), SHAPES[place]


@pytest.mark.parametrize("check", ["on", "full"])
def test_packs(comm, check):
    comm = comm.with_options(check=check)
    packs = comm.packs([np.zeros(shape, dtype) for dtype, shape in SHAPES])
    before = None
    for step in range(4):
        arrays = packs.next()
        assert len(arrays) == len(SHAPES)
        fill(arrays, comm, step)
        assert comm.all_reduce_many(arrays, out=arrays) is arrays
        check_lists(arrays, comm, step)
        if before is not None:
            check_lists(before, comm, step - 1)
        before = arrays
    assert packs.nbytes >= 2 * sum(array.nbytes for array in before)
    assert packs.next() is not before


def test_packs_give_what_ordinary_lists_give(comm):
    packs = comm.packs([np.zeros(shape, dtype) for dtype, shape in SHAPES])
    arrays = packs.next()
    fill(arrays, comm, 3)
    apart = comm.all_reduce_many([array.copy() for array in arrays])
    with_new = comm.all_reduce_many(arrays)
    for one, other, x in zip(apart, with_new, arrays, strict=True):
        assert equal(one, other)
        assert not np.may_share_memory(other, x)
    comm.all_reduce_many(arrays, out=arrays)
    assert all(equal(one, x) for one, x in zip(apart, arrays, strict=True))


def test_packs_of_nothing(comm):
    arrays = comm.packs([]).next()
    assert len(comm.all_reduce_many(arrays, out=arrays)) == 0


def test_what_is_put_in_the_place_of_an_array_is_an_error(comm):
    arrays = comm.packs([np.zeros(3), np.zeros(4)]).next()
    with pytest.raises(TypeError):
        arrays[0] = np.ones(3)


# --- the same bits, whatever the way -------------------------------------------------


def ways(comm, x):
    """Yield results of the same sum, by all ways that promise the order of ranks."""
    strict = comm.with_options(deterministic=True)
    for segment_bytes in (64, 1000, 1 << 19):
        cut = strict.with_options(segment_bytes=segment_bytes)
        for registered in (lambda r: False, lambda r: True, lambda r: r % 2 == 0):
            mine = spare(comm, x.size, x.dtype, registered(comm.rank), comm.rank)
            mine[:] = x
            for name in ("auto", "shared", "direct", "pairwise", "chain"):
                yield cut.all_reduce(mine, algorithm=name)
            yield cut.all_reduce(mine, out=SHARED).copy()
            out = spare(comm, x.size, x.dtype, registered(comm.rank))
            yield cut.all_reduce(mine, out=out)
            yield np.concatenate(cut.all_reduce_many(np.array_split(mine, 7)))
            packs = cut.packs(np.array_split(mine, 5)).next()
            for one, part in zip(packs, np.array_split(mine, 5), strict=True):
                one[:] = part
            cut.all_reduce_many(packs, out=packs)
            yield np.concatenate(packs)
            yield cut.all_reduce(mine, out=mine)


@pytest.mark.one_host
@pytest.mark.ranks(2, 3, 4, 5)
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("size", [3, 4001])
def test_the_bits_are_the_same_whatever_the_way(comm, dtype, size):
    numbers = np.random.default_rng([5, comm.rank]).standard_normal(size)
    x = (numbers * 8.0 ** (comm.rank % 3)).astype(dtype)
    digests = {
        blake2b(np.ascontiguousarray(result).tobytes()).hexdigest()
        for result in ways(comm, x)
    }
    assert len(digests) == 1
    assert len(set(comm.all_gather_object(digests.pop()))) == 1
