"""Work through the memory of a host: where there is none, and whatever comes next."""

import os
import time
from random import Random

import numpy as np
import pytest
from harness.arrays import dtype_of, equal, values
from harness.oracle import reduced

import collectives
from collectives import (
    BrokenCommunicatorError,
    InvalidArgumentError,
    Options,
    UnsupportedError,
)
from collectives.algorithms import direct
from collectives.algorithms.rounds import Rounds
from collectives.board import Board
from collectives.racing import Heat

LARGE = 100_000  # no window is smaller


@pytest.fixture
def fresh(comm):
    """Return a communicator that has made no call yet."""
    made = collectives.from_mpi(comm.mpi, Options(timeout_s=30))
    yield made
    made.close()


def no_memory_on(monkeypatch, comm, odd):
    """Let one rank have no memory for large pieces, such as a window."""
    arena = comm._group.arena
    really_carve = arena.carve

    def carve(nbytes):
        if comm.rank == odd and nbytes > LARGE:
            raise MemoryError("a test")
        return really_carve(nbytes)

    monkeypatch.setattr(arena, "carve", carve)


def check_all(comm, **how):
    """Make calls of all kinds and sizes."""
    rank, p = comm.rank, comm.size
    for size in (1, 1000, 100_000):
        x = np.arange(size, dtype=float) + rank
        total = p * np.arange(size) + sum(range(p))
        assert equal(comm.all_reduce(x, **how), total)
        got = comm.reduce(x, root=p - 1)
        assert got is None if rank < p - 1 else equal(got, total)
        assert equal(comm.broadcast(x, root=p - 1), np.arange(size) + p - 1.0)
        assert (comm.all_gather(np.full(size, rank)) == np.repeat(range(p), size)).all()
        assert comm.all_to_all(np.arange(p) + p * rank).tolist() == [
            rank + p * peer for peer in range(p)
        ]
        assert comm.scan(x)[0] == sum(range(rank + 1))
        many = comm.all_reduce_many([x, x[:3]], **how)
        assert equal(many[0], total)
    assert comm.all_reduce(x, out=collectives.SHARED).array[0] == total[0]


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("who", ["the first", "the last"])
def test_without_memory_on_one_rank_all_go_another_way(monkeypatch, fresh, who):
    odd = 0 if who == "the first" else fresh.size - 1
    no_memory_on(monkeypatch, fresh, odd)
    check_all(fresh)
    told = fresh.all_gather_object(fresh.choose("all_reduce", 1 << 20))
    assert len({choice.algorithm for choice in told}) == 1
    assert told[0].algorithm not in ("shared", "direct")
    used = fresh.all_gather_object(fresh._group.arena.used_bytes)
    assert max(used) < LARGE, "what the others had carved must go back"


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("algorithm", ["shared", "direct"])
def test_who_asks_for_a_window_that_cannot_be_is_told(monkeypatch, fresh, algorithm):
    no_memory_on(monkeypatch, fresh, 1)
    for size in (1, LARGE):
        texts = []
        for _ in range(2):
            with pytest.raises(UnsupportedError, match=r"ranks \[1\] had no memory"):
                fresh.all_reduce(np.ones(size), algorithm=algorithm)
            try:
                fresh.broadcast(np.ones(size), algorithm=algorithm)
            except UnsupportedError as error:
                texts.append(str(error))
        assert len(texts) == 2
        assert len(set(fresh.all_gather_object(tuple(texts)))) == 1
    check_all(fresh)


@pytest.mark.one_host
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("first", ["auto", "direct"])
def test_memory_that_one_rank_may_not_read(monkeypatch, fresh, first):
    def forbidden(process, address, out):
        raise PermissionError("a test")

    if fresh.rank == fresh.size - 1:
        monkeypatch.setattr(direct, "read_memory", forbidden)
    if first == "auto":
        check_all(fresh)
    text = rf"ranks \[{fresh.size - 1}\] may not read the memory of the others"
    for size in (1, LARGE):
        with pytest.raises(UnsupportedError, match=text):
            fresh.all_reduce(np.ones(size), algorithm="direct")
    check_all(fresh)
    check_all(fresh, algorithm="shared")


def test_nothing_is_left_open_by_communicators_that_come_and_go(comm):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    def one():
        with collectives.from_mpi(comm.mpi, Options(timeout_s=30)) as made:
            x = made.full(LARGE, 1.0)
            assert (made.all_reduce(x, out=x) == made.size).all()
            made.all_reduce(x, out=collectives.SHARED)

    one()
    before = descriptors()
    for _ in range(5):
        one()
    assert descriptors() == before


@pytest.mark.one_host
def test_arrays_outlive_the_communicator_that_made_them(comm):
    with collectives.from_mpi(comm.mpi, Options(timeout_s=30)) as made:
        x = made.full(LARGE, made.rank + 1.0)
        result = made.all_reduce(x, out=collectives.SHARED)
        total = result.array[0]
    with pytest.raises(BrokenCommunicatorError, match="it was closed"):
        made.empty(3)
    if comm.size > 1:
        with pytest.raises(InvalidArgumentError, match="its communicator was closed"):
            _ = result.array
    x[0] += 1
    y = comm.all_reduce(x, out=comm.empty(x.shape))
    assert y[0] == total + comm.size
    assert (y[1:] == total).all()


# --- one call after the other, at random ---------------------------------------------

DTYPES = ("float32", "float64", "float16", "int64", "uint8", "complex64")
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "scan")
MOVING = ("broadcast", "all_gather", "gather", "scatter", "all_to_all")
LISTS = ("all_reduce_many", "broadcast_many")


def draw_size(lot):
    """Return 0 to some hundred thousand elements; small ones are as likely as large."""
    return int(2 ** (lot.random() * 18.5)) - 1


class Storm:
    """Calls that all ranks draw by the same lot."""

    def __init__(self, comm, seed):
        self.lot, self.own = Random(seed), Random(seed * 1000 + comm.rank)
        self.groups = [
            comm,
            comm.split(comm.rank % 2),
            comm.group(range(comm.size)[::-1]),
            comm.with_options(segment_bytes=1 << self.lot.randint(8, 16)),
        ]
        self.calls = 0

    def close(self):
        for group in self.groups[1:]:
            group.close()

    def place(self, comm, shape, dtype):
        """Return memory, registered or not, each rank as it likes."""
        return (comm.empty if self.own.random() < 0.5 else np.empty)(shape, dtype)

    def everyones(self, comm, dtype, op, size):
        """Return what all ranks give in this call, and this one's in its memory."""
        shift = self.calls % 1000
        every = [values(dtype, op, r + shift, (size,)) for r in range(comm.size)]
        mine = self.place(comm, size, dtype_of(dtype))
        mine[:] = every[comm.rank]
        return every, mine

    def step(self):
        """Make one call on one of the groups."""
        lot, self.calls = self.lot, self.calls + 1
        comm = self.groups[lot.randrange(len(self.groups))]
        name = lot.choice(REDUCING + MOVING + LISTS)
        dtype, in_place = lot.choice(DTYPES), lot.random() < 0.5
        if name == "scan" or comm.size == 1:
            dtype = "float64"
        root, size = lot.randrange(60) % comm.size, draw_size(lot)
        what = f"{self.calls} {name} {dtype} {size} of {comm.size}"
        if name in LISTS:
            self.lists(comm, name, root, what)
            return
        every, mine = self.everyones(comm, dtype, "sum", size)
        call = getattr(self, name)
        got, wanted = call(comm, every, mine, root, in_place)
        assert (got is None) == (wanted is None), what
        assert wanted is None or equal(got, wanted), what
        mine[:] = 0  # nobody reads it any more

    def all_reduce(self, comm, every, mine, root, in_place):
        total = reduced(self.name_of(mine), "sum", every)
        if self.lot.random() < 0.2:
            return comm.all_reduce(mine, out=collectives.SHARED).copy(), total
        out = mine if in_place else self.place(comm, mine.shape, mine.dtype)
        return comm.all_reduce(mine, out=out).copy(), total

    def name_of(self, array):
        return str(array.dtype)

    def reduce(self, comm, every, mine, root, in_place):
        total = reduced(self.name_of(mine), "sum", every)
        got = comm.reduce(mine, root=root, out=mine if in_place else None)
        return got if got is None else got.copy(), (
            total if comm.rank == root else None
        )

    def reduce_scatter(self, comm, every, mine, root, in_place):
        total = reduced(self.name_of(mine), "sum", every)
        return comm.reduce_scatter(mine), np.array_split(total, comm.size)[comm.rank]

    def scan(self, comm, every, mine, root, in_place):
        total = reduced(self.name_of(mine), "sum", every[: comm.rank + 1])
        return comm.scan(mine, out=mine if in_place else None).copy(), total

    def broadcast(self, comm, every, mine, root, in_place):
        out = mine if in_place else None
        return comm.broadcast(mine, root=root, out=out).copy(), every[root]

    def all_gather(self, comm, every, mine, root, in_place):
        length = mine.size // (comm.rank + 1)
        wanted = [x[: x.size // (rank + 1)] for rank, x in enumerate(every)]
        return comm.all_gather(mine[:length]), np.concatenate(wanted)

    def gather(self, comm, every, mine, root, in_place):
        wanted = np.concatenate(every) if comm.rank == root else None
        return comm.gather(mine, root=root), wanted

    def scatter(self, comm, every, mine, root, in_place):
        wanted = np.array_split(every[root], comm.size)[comm.rank]
        return comm.scatter(mine if comm.rank == root else None, root=root), wanted

    def all_to_all(self, comm, every, mine, root, in_place):
        wanted = [np.array_split(x, comm.size)[comm.rank] for x in every]
        return comm.all_to_all(mine), np.concatenate(wanted)

    def lists(self, comm, name, root, what):
        lot = self.lot
        kinds = [
            (lot.choice(DTYPES), draw_size(lot) // 4) for _ in range(lot.randint(0, 6))
        ]
        limit = lot.choice((0, 0, 1, 5000))
        pairs = [self.everyones(comm, dtype, "sum", size) for dtype, size in kinds]
        mine = [x for _, x in pairs]
        out = mine if lot.random() < 0.5 else None
        if name == "all_reduce_many":
            got = comm.all_reduce_many(mine, out=out, bytes_per_pack=limit)
            wanted = [
                reduced(dtype, "sum", every)
                for (dtype, _), (every, _) in zip(kinds, pairs, strict=True)
            ]
        else:
            got = comm.broadcast_many(mine, root, out=out, bytes_per_pack=limit)
            wanted = [every[root] for every, _ in pairs]
        kept = [one.copy() for one in got]
        for x in mine:
            x[:] = 0
        for one, total in zip(kept, wanted, strict=True):
            assert equal(one, total), f"{what}: {kinds} {limit} {out is None}"


def storm(comm, seed, seconds):
    """Make calls for so many seconds, on all ranks equally many."""
    calls = Storm(comm, seed)
    try:
        end, going = time.monotonic() + seconds, True
        while going:
            for _ in range(50):
                calls.step()
            going = comm.all_reduce(int(time.monotonic() < end), "min").item()
    finally:
        calls.close()


def test_a_storm_of_calls(comm):
    storm(comm, 1, 3)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 5))
def test_a_long_storm_of_calls(comm, seed):
    storm(comm, seed, 20)


@pytest.mark.ranks(2, 3)
def test_a_storm_with_checks_and_in_order(comm):
    storm(comm.with_options(check="full", deterministic=True), 7, 1)


def slowly(function, lot):
    """Return the function with little pauses before and after it, now and then."""

    def slow(*arguments, **options):
        for call in (lambda: None, lambda: function(*arguments, **options)):
            result = call()
            if lot.random() < 0.03:
                time.sleep(lot.random() * 0.002)
        return result

    return slow


@pytest.mark.ranks(2, 3, 4)
def test_a_storm_in_which_ranks_are_slow_at_random(comm, monkeypatch):
    """And in which any rival may make any call."""
    lot = Random(comm.rank)
    for kind, names in (
        (Board, ("hand_over", "post", "read", "read_first", "write", "same")),
        (Rounds, ("span", "slots", "combine")),
    ):
        for name in names:
            monkeypatch.setattr(kind, name, slowly(getattr(kind, name), lot))
    monkeypatch.setattr(Heat, "pick", lambda self: lot.randrange(len(self.rivals)))
    storm(comm, 11, 2)


@pytest.mark.ranks(2, 3, 4)
def test_a_rank_that_learns_late_which_algorithm_runs(comm, monkeypatch):
    """The root may be back from the MPI's broadcast, and in that of the next array."""
    picks = iter([2, 0] * 1000)
    monkeypatch.setattr(Heat, "pick", lambda self: next(picks) % len(self.rivals))
    really_read = Board.read_first

    def late(board, word):
        time.sleep(0.01)
        return really_read(board, word)

    if comm.rank == comm.size - 1:
        monkeypatch.setattr(Board, "read_first", late)
    for step in range(10):
        mine = [np.full(6000, comm.rank + step), np.full(6000, comm.rank + step + 0.5)]
        got = comm.broadcast_many(mine, root=0, bytes_per_pack=1)
        assert (got[0] == step).all()
        assert (got[1] == step + 0.5).all()


# --- groups that come and go ---------------------------------------------------------


def use_groups(comm, count):
    """Make, use and close groups with a window each; return the seconds of one."""
    arena = comm._group.arena
    start = time.perf_counter()
    for number in range(count):
        ranks = range(comm.size)
        with comm.group(ranks[::-1] if number % 2 else ranks) as group:
            x = group.full(LARGE, group.rank + number)
            total = group.size * number + sum(ranks)
            assert group.all_reduce(x)[-1] == total
            assert group.all_reduce(x, out=collectives.SHARED).array[0] == total
            assert group.all_reduce(number).item() == group.size * number
        del x
    if arena is not None:
        comm.empty(1)
    return (time.perf_counter() - start) / count


def check_groups(comm, count):
    arena = comm._group.arena
    comm.all_reduce(np.ones(3))
    comm.empty(1)
    before = arena.used_bytes if arena is not None else 0
    seconds = use_groups(comm, count)
    after = arena.used_bytes if arena is not None else 0
    assert after <= before + 1024, "a group that was closed keeps memory"
    assert seconds < 0.5
    return seconds


def test_groups_that_are_closed_give_all_memory_back(comm):
    check_groups(comm, 50)


@pytest.mark.full
@pytest.mark.ranks(2, 4)
def test_two_thousand_groups_give_all_memory_back(comm, capsys):
    seconds = check_groups(comm, 2000)
    with capsys.disabled():
        if comm.rank == 0:
            print(f" {seconds * 1e3:.2f} ms a group ", end="")


def test_a_group_is_closed_while_its_parent_goes_on(comm):
    x = comm.full(LARGE, comm.rank + 1.0)
    total = comm.size * (comm.size + 1) / 2
    group = comm.split(0)
    mine = group.full(LARGE, comm.rank + 1.0)
    assert group.all_reduce(mine)[0] == total
    group.close()
    assert (mine == comm.rank + 1).all(), "its arrays are the arena's, not the group's"
    for array in (x, mine):
        assert (comm.all_reduce(array) == total).all()


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("algorithm", ["shared", "direct", "auto"])
def test_what_has_begun_before_the_ranks_disagree_does_no_harm(fresh, algorithm):
    rank, p = fresh.rank, fresh.size
    for number in range(12):
        n = LARGE + number
        x = values("float64", "sum", rank, (n,)) * (number + 1)
        kept = x.copy()
        with pytest.raises(collectives.MismatchError, match="shape"):
            fresh.all_reduce(x[: n - (rank == number % p)], algorithm=algorithm)
        assert equal(x, kept)
        given = [values("float64", "sum", r, (n,)) * (number + 1) for r in range(p)]
        expected = reduced("float64", "sum", given)
        # Some ranks go the short way, one has an array that cannot.
        odd = np.asfortranarray(np.repeat(x, 2).reshape(n, 2))[:, 0]
        mine = odd if rank == number % p else x
        assert equal(fresh.all_reduce(mine, algorithm=algorithm), expected)
        assert equal(x, kept)
