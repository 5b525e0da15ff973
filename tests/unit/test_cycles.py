"""Ranks that wait for each other in different groups, on one host."""

import re
import threading

import numpy as np
import pytest
from harness.threads import outcome

from collectives import (
    CollectiveTimeoutError,
    Communicator,
    MismatchError,
    Options,
    cycles,
    recorder,
)
from collectives.arena import private_arena
from collectives.board import CALLS, Board, board_bytes
from collectives.cycles import CLOSED, Wait, Waits, describe, stuck_among
from collectives.descriptor import Descriptor
from collectives.group import Group
from collectives.topology import Topology
from collectives.transport.loopback import run_threads

HEAP_BYTES = 1 << 16


@pytest.fixture
def soon(monkeypatch):
    """Look often, and believe that a rank is a process, which makes calls by itself."""
    monkeypatch.setattr(cycles, "LOOK_S", 0.06)
    monkeypatch.setattr(recorder.here, "callers", lambda: 1)


def run_host(size, body, **options):
    """Run `body(comm)` on ranks whose groups have their boards in one arena."""
    arenas = private_arena(size, HEAP_BYTES)
    place = arenas[0].carve(board_bytes(size))
    members = range(size)

    def one_rank(messages):
        rank, arena = messages.rank, arenas[messages.rank]
        memory = arena.view(place, board_bytes(size))
        group = Group(
            messages,
            Topology(rank, ("host",), (0,) * size, cores=1),
            board=Board(memory, members, rank, place=place, number=rank),
            arena=arena,
            waits=Waits(arena, place, members, rank),
        )
        return body(Communicator(group, Options(**{"timeout_s": 20, **options})))

    return run_threads(size, one_rank)


def crosswise(comm, call=lambda comm: comm.barrier()):
    """Let rank 0 be in a group of two, and all others in the parent."""
    pair = comm.group([0, 1])
    return pair, outcome(lambda: call(pair if comm.rank == 0 else comm))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_who_waits_for_each_other_is_told_the_same(soon, size):
    errors = run_host(size, lambda comm: crosswise(comm)[1])
    everybody = list(range(size))
    for error in errors:
        assert type(error) is MismatchError
        assert str(error) == (
            "the ranks wait for each other: rank 0 is in barrier #1 of group [0, 1], "
            f"waiting for rank 1; rank 1 is in barrier #2 of group {everybody}, "
            "waiting for rank 0"
        )


def test_afterwards_all_groups_can_be_used_as_if_nothing_had_been_called(soon):
    def body(comm):
        pair, error = crosswise(comm, lambda comm: comm.all_reduce(np.ones(3)))
        assert type(error) is MismatchError
        again, error = crosswise(comm)
        assert type(error) is MismatchError
        total = comm.all_reduce(comm.rank + 1.0).item()
        if not pair:
            return total, None
        return total, pair.all_reduce(1.0).item() + again.all_reduce(1.0).item()

    assert run_host(3, body) == [(6.0, 4.0), (6.0, 4.0), (6.0, None)]


def test_a_cycle_through_three_groups_that_no_rank_knows_all_of(soon):
    def body(comm):
        pairs = [comm.group([0, 1]), comm.group([1, 2]), comm.group([2, 0])]
        return outcome(pairs[comm.rank].barrier)

    errors = run_host(3, body)
    assert {type(error) for error in errors} == {MismatchError}
    assert {str(error) for error in errors} == {
        "the ranks wait for each other: rank 0 is in barrier #1 of group [0, 1], "
        "waiting for rank 1; rank 1 is in barrier #1 of group [1, 2], waiting for rank "
        "2; rank 2 is in barrier #1 of group [2, 0], waiting for rank 0"
    }


def test_who_waits_for_somebody_that_computes_waits_on(soon):
    """Rank 2 needs 1, which needs 0, which takes its time: no cycle."""
    late = threading.Event()

    def body(comm):
        first, last = comm.group([0, 1]), comm.group([1, 2])
        if comm.rank == 0:
            late.wait(1)
        for group in (first, last):
            if group:
                group.barrier()
        return comm.all_reduce(1.0).item()

    assert run_host(3, body) == [3.0] * 3


def test_a_cycle_that_is_not_certain_is_told_at_the_deadline(soon, monkeypatch):
    """A rank that makes calls from two threads could still make the other one."""
    monkeypatch.setattr(recorder.here, "callers", lambda: 2)
    errors = run_host(3, lambda comm: crosswise(comm)[1], timeout_s=0.5)
    for rank, error in enumerate(errors):
        assert type(error) is CollectiveTimeoutError
        assert str(error).startswith(f"rank {rank}: barrier #")
    told = "rank 1 (has been in|gave up) barrier #2 of group \\[0, 1, 2\\] "
    assert re.search(told, str(errors[0]))
    assert str(errors[0]).endswith(", waiting for rank 0: a cycle")
    assert "barrier #1 of group [0, 1]" in str(errors[1])
    assert str(errors[1]).endswith(", waiting for rank 1: a cycle")
    assert "barrier #1 of group [0, 1]" in str(errors[2])
    assert "cycle" not in str(errors[2])


def test_a_call_in_the_background_is_no_part_of_a_cycle(soon):
    """Rank 0 starts a call that rank 1 starts later: both go on meanwhile."""
    late = threading.Event()

    def body(comm):
        pair = comm.group([0, 1])
        comm.start_barrier().wait(20)  # the first one makes their group, with all ranks
        if comm.rank == 0:
            handle = comm.start_barrier()
            late.wait(0.5)
            pair.barrier()
        else:
            pair.barrier()
            handle = comm.start_barrier()
        handle.wait(20)
        return comm.all_reduce(1.0).item()

    assert run_host(2, body) == [2.0, 2.0]


def test_a_rank_of_a_derived_group_is_named_by_both_its_numbers():
    over = threading.Barrier(3)

    def body(comm):
        group = comm.group([2, 1])
        error = outcome(group.barrier) if comm.rank == 1 else None
        over.wait(20)
        return error

    _, error, _ = run_host(3, body, timeout_s=0.3)
    assert "rank 0 (2 of the job) has been in user code" in str(error)


def test_waits_that_were_not_the_same_a_while_ago_prove_nothing(monkeypatch):
    monkeypatch.setattr(cycles, "LOOK_S", 0)
    arena = private_arena(1, HEAP_BYTES)[0]
    boards = {}
    for name in ("first", "second"):
        place = arena.carve(board_bytes(2))
        memory = arena.view(place, board_bytes(2))
        boards[name] = [
            Board(memory, (0, 1), rank, place=place, number=rank) for rank in (0, 1)
        ]
    waits = [Waits(arena, boards["first"][0].place, (0, 1), rank) for rank in (0, 1)]

    def go_and_wait(rank, name):
        boards[name][rank].post(1, 1, 1)
        waits[rank].tell(boards[name][rank], 1, True)

    go_and_wait(0, "first")
    go_and_wait(1, "second")
    assert not waits[0].stuck(), "seen once"
    waits[1].end(boards["second"][1])
    waits[1].tell(boards["second"][1], 1, True)
    assert not waits[0].stuck(), "another wait than the one before"
    assert set(waits[0].stuck()) == {0, 1}
    boards["first"][1].post(1, 1, 1)
    assert not waits[0].stuck(), "rank 1 has come"


def test_who_comes_when_another_takes_back_waits_for_both():
    """Rank 1 arrives and takes that back, 0 arrives only then, 2 sees all of it."""
    back, seen = threading.Event(), threading.Event()

    def body(comm):
        if comm.rank == 1:
            group, board = comm._group, comm._group.board
            group.enter("barrier")
            board.post(1, CALLS.index("barrier"), Descriptor("barrier").word(1))
            seen.wait(0.3)
            board.take_back(1)
            group.sequence -= 1
            group.exit()
            back.set()
            seen.wait(0.3)
        elif comm.rank == 0:
            back.wait(20)
        return outcome(comm.barrier)

    assert run_host(3, body) == [None] * 3


def wait(*late, ranks=(0, 1, 2), call="barrier #1"):
    return Wait(1, CLOSED, call, tuple(ranks), tuple(late), 1.0)


# what each rank waits for -> who is stuck
GRAPHS = {
    "nobody waits": ({}, set()),
    "one waits for one who computes": ({0: wait(1)}, set()),
    "a chain": ({0: wait(1), 1: wait(2)}, set()),
    "a pair": ({0: wait(1), 1: wait(0)}, {0, 1}),
    "a pair and one who needs it": ({0: wait(1), 1: wait(0), 2: wait(0)}, {0, 1, 2}),
    "one of several is stuck": ({0: wait(1, 3), 1: wait(0)}, {0, 1}),
    "a ring and a way out of it": (
        {0: wait(1), 1: wait(2, 4), 2: wait(0), 4: wait(5)},
        {0, 1, 2},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_who_is_stuck(name):
    waits, expected = GRAPHS[name]
    assert set(stuck_among(waits)) == expected


def test_the_cycle_is_described_from_its_lowest_rank_wherever_one_comes_from():
    ring = {3: wait(5), 5: wait(4), 4: wait(3), 0: wait(5), 1: wait(0)}
    text = describe(stuck_among(ring))
    assert text.index("rank 3 is in") < text.index("rank 5 is in")
    assert text.index("rank 5 is in") < text.index("rank 4 is in")
    assert text.endswith("waiting for rank 3")
    assert "rank 0" not in text
    assert "rank 1 " not in text
