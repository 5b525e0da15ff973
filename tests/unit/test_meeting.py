"""Groups made by their members alone, where somebody does not come or means another."""

import threading

import pytest
from harness.threads import WORLDS, outcome, run_ranks

from collectives import (
    BrokenCommunicatorError,
    CollectiveTimeoutError,
    MismatchError,
)
from collectives.calls import meeting

SOON = 0.2


def meet(size, lists, world="one board", **options):
    """Let the ranks in `lists` make their groups; return what came of it, by rank."""
    over = threading.Barrier(size)

    def body(comm):
        made = None
        if comm.rank in lists:
            made = outcome(lambda: comm.group(lists[comm.rank], members_only=True))
        over.wait(20)
        if made is not None and not isinstance(made, Exception):
            made = made.all_gather_object(comm.rank)
        return made, comm._group.broken

    made, broken = zip(*run_ranks(size, body, world, **options), strict=True)
    return made, broken


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_groups_are_made_side_by_side(world, size):
    lists = {r: [q for q in range(size) if q % 3 == r % 3][::-1] for r in range(size)}
    made, broken = meet(size, lists, world)
    assert list(made) == [lists[rank] for rank in range(size)]
    assert not any(broken)


@pytest.mark.parametrize("world", WORLDS)
def test_who_does_not_come_is_named_and_who_came_is_not(world):
    made, broken = meet(4, {0: [0, 1, 2], 2: [0, 1, 2]}, world, timeout_s=SOON)
    for rank in (0, 2):
        text = str(made[rank])
        assert type(made[rank]) is CollectiveTimeoutError
        assert f"rank {rank}: group #0 made no progress for 0.2 s: " in text
        assert "rank 1 " in text
        assert text.count("rank ") == 2, text
        assert broken[rank]


@pytest.mark.parametrize("world", WORLDS)
def test_lists_that_differ_are_the_same_error_on_all_who_name_each_other(world):
    lists = {0: [0, 1], 1: [0, 1, 2], 2: [2, 1, 0], 3: [3]}
    made, broken = meet(4, lists, world)
    assert {str(error) for error in made[:3]} == {
        "the ranks disagree on the members of a group; rank 0: [0, 1]; "
        "rank 1: [0, 1, 2]; rank 2: [2, 1, 0]"
    }
    assert {type(error) for error in made[:3]} == {MismatchError}
    assert made[3] == [3]
    assert not any(broken)


def test_when_lists_differ_nobody_waits_long_for_those_who_do_not_come(monkeypatch):
    monkeypatch.setattr(meeting, "GRACE_S", SOON)
    made, broken = meet(3, {0: [0, 1], 1: [0, 1, 2]})
    assert {str(error) for error in made[:2]} == {
        "the ranks disagree on the members of a group; rank 0: [0, 1]; "
        "rank 1: [0, 1, 2]; not heard from: rank 2"
    }
    assert all(broken[:2])
    assert not broken[2]


def test_a_broken_communicator_makes_no_group():
    def body(comm):
        comm._group.broken = "a test"
        return outcome(lambda: comm.group([comm.rank], members_only=True))

    assert {type(error) for error in run_ranks(2, body)} == {BrokenCommunicatorError}
