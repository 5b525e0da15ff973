"""Memory shared by the ranks of a host: heaps, how it is made, and what can fail."""

import mmap
import os
import threading
import weakref
from itertools import pairwise

import numpy as np
import pytest

from collectives import arena, backing
from collectives.arena import ALIGNMENT, LARGE, PAGE, WHOLE_PAGES, Arena, private_arena
from collectives.backing import MOST_BYTES, heap_sizes, shared_arena

HEAP = 1 << 12


class Threads:
    """The ranks of a host during start-up, as threads; see `arena.LocalRanks`."""

    def __init__(self, rank, size, shared):
        self.rank, self.size = rank, size
        self._values, self._barrier = shared

    def _all_gather(self, value):
        self._values[self.rank] = value
        self._barrier.wait(10)
        everything = list(self._values)
        self._barrier.wait(10)
        return everything

    def broadcast(self, value):
        return self._all_gather(value)[0]

    def all(self, fine):
        return all(self._all_gather(fine))


def on_threads(size, body=lambda ranks: shared_arena(ranks, [HEAP])):
    """Run `body(ranks)` on each of `size` local ranks; return the results by rank."""
    shared = [None] * size, threading.Barrier(size)
    results = [None] * size

    def one(rank):
        results[rank] = body(Threads(rank, size, shared))

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def fails(text):
    def create(nbytes):
        raise OSError(text)

    return create


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_one_rank_writes_all_ranks_read(size):
    made = on_threads(size)
    assert {how for _, how in made} == {"memfd"}
    arenas = [one for one, _ in made]
    offsets = [one.carve(8) for one in arenas]
    for rank, offset in enumerate(offsets):
        arenas[rank].view(offset, 8).cast("q")[0] = rank + 1
    for one in arenas:
        assert [one.view(offset, 8).cast("q")[0] for offset in offsets] == [
            rank + 1 for rank in range(size)
        ]
    for one in arenas:
        one.close()


def test_nothing_is_left_open_or_behind():
    def count():
        return len(os.listdir("/proc/self/fd"))

    before = count(), set(os.listdir("/dev/shm"))
    for one, _ in on_threads(3):
        one.close()
    assert (count(), set(os.listdir("/dev/shm"))) == before


def test_without_memfd_a_file_in_dev_shm_is_used(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    before = set(os.listdir("/dev/shm"))
    made = on_threads(3)
    assert {how for _, how in made} == {"/dev/shm"}
    assert set(os.listdir("/dev/shm")) == before, "the file must be unlinked"
    first, last = made[0][0], made[2][0]
    offset = last.carve(1)
    last.view(offset, 1)[0] = 77
    assert first.view(offset, 1)[0] == 77
    for one, _ in made:
        one.close()


def test_where_nothing_works_all_ranks_are_told_the_reasons(monkeypatch):
    monkeypatch.setattr(
        backing, "BACKINGS", {"one": fails("is full"), "two": fails("not here")}
    )
    assert on_threads(3) == [(None, "one: is full; two: not here")] * 3


def test_a_full_memory_is_noticed_before_it_is_touched(monkeypatch):
    def full(descriptor, offset, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = set(os.listdir("/dev/shm"))
    for one, reason in on_threads(2):
        assert one is None
        assert reason.count("No space left") == 2
    assert set(os.listdir("/dev/shm")) == before


def test_one_rank_that_cannot_map_it_makes_all_go_on_to_the_next(monkeypatch):
    really_open = backing._open

    def cannot_open_proc(path, flags):
        if path.startswith("/proc/"):
            raise PermissionError("not allowed")
        return really_open(path, flags)

    monkeypatch.setattr(backing, "_open", cannot_open_proc)
    made = on_threads(3)
    assert {how for _, how in made} == {"/dev/shm"}
    for one, _ in made:
        one.close()


def test_a_path_that_leads_to_another_file_is_noticed(monkeypatch, tmp_path):
    """In another container the same path or pid is something else."""
    other = tmp_path / "other"
    other.write_bytes(bytes(2 * HEAP))

    def astray(nbytes):
        descriptor, _ = backing._anonymous_file(nbytes)
        return descriptor, f"/proc/self/root{other}"

    monkeypatch.setattr(backing, "BACKINGS", {"astray": astray})
    for one, reason in on_threads(2):
        assert one is None
        assert reason.startswith("astray: ")


def test_heaps_are_apart_aligned_and_zeroed():
    one, two = private_arena(2, HEAP)
    first, second, others = one.carve(1), one.carve(200), two.carve(1)
    assert [first, second, others] == [0, ALIGNMENT, HEAP]
    one.view(second, 200)[:] = b"x" * 200
    one.release(second)
    again = one.carve(200)
    assert again == second
    assert one.view(again, 200) == bytes(200)


def test_a_heap_is_used_to_its_end_and_no_further():
    one, two = private_arena(2, HEAP)
    for _ in range(HEAP // ALIGNMENT):
        one.carve(ALIGNMENT)
    with pytest.raises(MemoryError, match="no room for 1 bytes"):
        one.carve(1)
    assert two.carve(HEAP) == HEAP


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_what_is_released_grows_together(order):
    (one,) = private_arena(1, 3 * ALIGNMENT)
    offsets = [one.carve(ALIGNMENT) for _ in range(3)]
    for index in order:
        one.release(offsets[index])
    assert one.carve(3 * ALIGNMENT) == 0


def test_empty_pieces_do_not_get_in_the_way_of_others():
    (one,) = private_arena(1, HEAP)
    empty, piece = one.carve(0), one.carve(8)
    one.release(empty)
    one.release(piece)
    assert one.carve(HEAP) == 0


def test_only_what_was_carved_can_be_released():
    (one,) = private_arena(1, HEAP)
    offset = one.carve(8)
    one.release(offset)
    with pytest.raises(KeyError):
        one.release(offset)


def test_who_holds_a_view_may_use_it_after_the_arena_has_been_closed():
    one = Arena(mmap.mmap(-1, HEAP), 0, HEAP)
    view = one.view(one.carve(8), 8)
    one.close()
    one.close()
    view[0] = 1
    assert view[0] == 1


def test_an_array_may_be_used_after_the_arena_has_been_closed():
    (one,) = private_arena(1, HEAP)
    array = np.ndarray(4, float, one.view(one.carve(32), 32))
    mapping = weakref.ref(one.memory)
    one.close()
    array[:] = 7
    assert array.sum() == 28
    del array
    assert mapping() is None, "the mapping goes with its last array"


def test_large_pieces_have_whole_pages_and_are_zero_again():
    (one,) = private_arena(1, 4 * WHOLE_PAGES)
    small, large = one.carve(1), one.carve(WHOLE_PAGES + 1)
    assert (small, large % PAGE) == (0, 0)
    one.view(large, WHOLE_PAGES)[:] = b"x" * WHOLE_PAGES
    one.release(large)
    assert one.carve(WHOLE_PAGES + 1) == large
    assert one.view(large, WHOLE_PAGES) == bytes(WHOLE_PAGES)


def test_what_a_finalizer_lets_go_is_there_for_the_next_one():
    (one,) = private_arena(1, HEAP)
    offset = one.carve(HEAP)
    one.let_go(offset)
    assert one.carve(8) == offset
    assert one.used_bytes == ALIGNMENT


def test_what_would_be_killed_for_is_refused(monkeypatch):
    ((one, _),) = on_threads(1, lambda ranks: shared_arena(ranks, [1 << 26]))
    monkeypatch.setattr(arena, "available_bytes", lambda: LARGE + PAGE)
    with pytest.raises(MemoryError, match=f"{LARGE + PAGE} are left"):
        one.carve(2 * LARGE)
    assert one.used_bytes == 0
    one.release(one.carve(LARGE))
    one.close()


def test_what_is_left_is_less_than_the_machine_has(monkeypatch, tmp_path):
    machine = os.sysconf("SC_PHYS_PAGES") * PAGE
    assert 0 < arena.available_bytes() < machine
    monkeypatch.setattr(arena, "CONTROL_GROUPS", tmp_path)
    without = arena.available_bytes()
    for limit, most in (("max\n", machine), ("16000000\n", 8_000_000)):
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text("10000000\n")
        (tmp_path / "memory.stat").write_text("anon 7\ninactive_file 2000000\n")
        assert 0 < arena.available_bytes() <= most
    assert without > 8_000_000


def test_threads_that_carve_at_once_get_memory_apart():
    ((one, _),) = on_threads(1, lambda ranks: shared_arena(ranks, [1 << 24]))
    places, together = [], threading.Barrier(4)

    def carve():
        together.wait(10)
        for _ in range(100):
            places.append(one.carve(9000))

    threads = [threading.Thread(target=carve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    places.sort()
    assert len(places) == 400
    assert all(high - low >= 9000 for low, high in pairwise(places))
    one.close()


def test_heaps_are_as_large_as_the_machine_or_small():
    for ranks in (1, 2, 5, 128, 1000):
        large, small = heap_sizes(ranks)
        assert ranks * large <= MOST_BYTES
        assert small < large
    assert heap_sizes(2)[0] >= os.sysconf("SC_PHYS_PAGES") * PAGE
