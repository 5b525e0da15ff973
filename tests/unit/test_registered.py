"""Registered arrays: where they lie, and when their memory goes back."""

import gc
import threading

import numpy as np
import pytest
from harness.threads import run_ranks

from collectives import SHARED, InvalidArgumentError, UnsupportedError
from collectives.arena import WHOLE_PAGES, private_arena
from collectives.registered import Results, SharedResult, empty, place_of

HEAP = 1 << 22
SIZES = [1, 100, WHOLE_PAGES // 8, WHOLE_PAGES]  # in elements of 8 bytes


@pytest.fixture
def arena():
    (one,) = private_arena(1, HEAP)
    return one


def views_of(x):
    """Return contiguous views of a (4, 6) array of float64, and their offsets."""
    return {
        "the array": (x, 0),
        "flat": (x.reshape(-1), 0),
        "rows": (x[1:3], 48),
        "a view of a view": (x[1:][1:].reshape(-1)[3:], 120),
        "another shape": (x.reshape(2, 12)[1], 96),
        "another dtype": (x[2].view(np.int32), 96),
        "read-only": (read_only(x[1]), 48),
    }


def read_only(x):
    view = x[...]
    view.flags.writeable = False
    return view


def test_views_are_found_where_they_lie(arena):
    empty(arena, 1000, float)  # so that nothing begins at 0
    x = empty(arena, (4, 6), float)
    whole = place_of(arena, x)
    assert whole >= 0
    for name, (view, offset) in views_of(x).items():
        if view.flags.writeable:
            view.fill(len(name))
        assert place_of(arena, view) == whole + offset, name
        memory = arena.view(whole + offset, view.nbytes)
        assert bytes(memory) == view.tobytes(), name


def test_ordinary_arrays_lie_nowhere(arena):
    x = empty(arena, 10, float)
    (other,) = private_arena(1, HEAP)
    for array in (
        np.empty(10),
        np.empty(10)[2:],
        np.frombuffer(bytearray(80)),
        x.copy(),
        x + 1,
        x[[1, 2]],
        empty(other, 10, float),
        empty(other, 10, float)[1:],
        empty(None, 10, float),
    ):
        assert place_of(arena, array) == -1


@pytest.mark.parametrize("size", SIZES)
def test_memory_goes_back_with_the_last_view_and_is_zero_for_the_next(arena, size):
    before = arena.used_bytes
    x = empty(arena, size, float)
    place, view = place_of(arena, x), x.reshape(-1)[size // 2 :][:1]
    x[:] = 7
    del x
    gc.collect()
    assert place_of(arena, empty(arena, size, float)) != place
    assert view[0] == 7, "a view keeps the whole"
    del view
    gc.collect()
    again = empty(arena, size, float)
    assert place_of(arena, again) == place
    assert not again.any()
    del again
    gc.collect()
    arena.release(arena.carve(1))
    assert arena.used_bytes == before


@pytest.mark.parametrize("shape", [(), 5, (2, 3), [4]])
@pytest.mark.parametrize("dtype", [float, "float16", "c16", bool, ">i4"])
def test_shape_and_dtype_are_those_of_numpy(arena, shape, dtype):
    x, wanted = empty(arena, shape, dtype), np.empty(shape, dtype)
    assert (x.shape, x.dtype) == (wanted.shape, wanted.dtype)
    assert x.flags.carray == wanted.flags.carray
    assert place_of(arena, x) >= 0


def test_arrays_without_elements_are_ordinary(arena):
    assert empty(arena, (3, 0), float).shape == (3, 0)
    assert arena.used_bytes == 0


def test_what_cannot_be_had_costs_nothing(arena):
    with pytest.raises(MemoryError):
        empty(arena, HEAP, float)
    with pytest.raises(UnsupportedError, match="dtype object"):
        empty(arena, 3, object)
    with pytest.raises(ValueError, match="negative"):
        empty(arena, (3, -1), float)
    assert arena.used_bytes == 0
    assert place_of(arena, empty(arena, 3, float)) == 0


def test_threads_that_make_arrays_at_once_get_them_apart():
    def body(comm):
        made = [[] for _ in range(3)]

        def make(mine, number):
            for _ in range(30):
                mine.append(comm.full(50, number))

        threads = [
            threading.Thread(target=make, args=(mine, number))
            for number, mine in enumerate(made)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return all((x == n).all() for n, mine in enumerate(made) for x in mine)

    assert run_ranks(2, body) == [True, True]


# --- results that are common to the ranks --------------------------------------------


def write(arena, results, number, poison=False):
    """Make the next result, with `number` in all its bytes; return where it is."""
    place = results.place(64, poison)
    results.made += 1
    arena.view(place, 64)[:] = bytes([number] * 64)
    return place


@pytest.mark.parametrize("turns", ["00", "11", "01", "10", "0011", "1100", "0101101"])
def test_a_result_is_whole_until_the_second_next_one(arena, turns):
    """Whoever asks for `check="full"`, which keeps what has expired for longer."""
    results, places = Results(arena), []
    for number in range(1, 30):
        poison = turns[number % len(turns)] == "1"
        places.append(write(arena, results, number, poison))
        for back in range(min(2, number)):
            seen = bytes(arena.view(places[-1 - back], 64))
            assert seen == bytes([number - back] * 64)
        if poison and number > 2 and places[-3] not in places[-2:]:
            assert bytes(arena.view(places[-3], 64)) == b"\xff" * 64
    assert len(set(places)) <= 3
    results.close()
    assert arena.used_bytes == 0


def test_without_poison_there_are_two_areas(arena):
    results = Results(arena)
    places = [write(arena, results, number) for number in range(9)]
    assert len(set(places)) == 2


def test_areas_grow_and_what_does_not_fit_is_told(arena):
    results = Results(arena)
    for nbytes in (100, 5000, 10, 100_000, 7):
        assert results.place(nbytes, False) >= 0
        results.made += 1
    assert results.place(HEAP, False) == -1
    results.made += 1
    assert results.place(100, False) >= 0


def test_a_result_expires_and_says_so(arena):
    results = Results(arena)
    results.made += 1
    one = SharedResult(np.arange(3.0), results)
    results.made += 1
    assert one.array.tolist() == [0, 1, 2]
    results.made += 1
    for use in (lambda: one.array, one.copy, lambda: np.asarray(one)):
        with pytest.raises(InvalidArgumentError, match=r"2 have been made since.*copy"):
            use()


def test_results_are_gone_with_their_communicator(arena):
    results = Results(arena)
    results.made += 1
    one = SharedResult(np.arange(3.0), results)
    results.close()
    with pytest.raises(InvalidArgumentError, match="its communicator was closed"):
        _ = one.array


def test_a_result_cannot_be_written(arena):
    results = Results(arena)
    results.made += 1
    one = SharedResult(np.arange(6).reshape(2, 3), results)
    with pytest.raises(ValueError, match="read-only"):
        one.array[0] = 1
    assert (one.shape, one.dtype) == ((2, 3), np.dtype(int))
    mine = one.copy()
    mine[...] = 0
    assert one.array[1, 2] == 5
    assert np.asarray(one, float).dtype == float


def test_a_result_may_be_the_next_input():
    """Also of the call in which it expires."""

    def body(comm):
        x = comm.full(10_000, comm.rank + 1.0)
        first = comm.all_reduce(x, out=SHARED)
        second = comm.all_reduce(first.array, out=SHARED)
        third = comm.all_reduce(first.array, out=SHARED)
        fourth = comm.all_reduce(second.array)
        return [np.unique(y).tolist() for y in (second.copy(), third.copy(), fourth)]

    for check in ("on", "full"):
        assert run_ranks(3, body, check=check) == [[[18], [18], [54]]] * 3
