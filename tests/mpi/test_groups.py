"""Groups of ranks: who is in, in which order, and what an outsider gets."""

import numpy as np
import pytest

from collectives import (
    BrokenCommunicatorError,
    ExhaustedError,
    InvalidArgumentError,
    MismatchError,
)
from collectives.transport.mpi import MPIMessages


def test_a_group_has_the_ranks_in_the_order_of_the_list(comm):
    ranks = list(range(comm.size))[::-1]
    with comm.group(ranks) as group:
        assert group.rank == ranks.index(comm.rank)
        assert group.all_gather_object(comm.rank) == ranks
        assert group.all_reduce(comm.rank).item() == sum(ranks)


def test_on_a_rank_that_is_not_in_it_every_use_is_an_error(comm):
    group = comm.group([0])
    if comm.rank == 0:
        assert group.all_reduce(7).item() == 7
    else:
        assert not group
        with pytest.raises(
            BrokenCommunicatorError, match=f"rank {comm.rank} is not in"
        ):
            group.barrier()
    group.close()


def test_split_makes_a_group_of_each_color_ordered_by_key(comm):
    with comm.split(comm.rank % 2, key=-comm.rank) as group:
        same = [r for r in range(comm.size) if r % 2 == comm.rank % 2]
        assert group.all_gather_object(comm.rank) == same[::-1]


def test_color_none_is_in_no_group(comm):
    group = comm.split(None if comm.rank == 0 else 1)
    assert bool(group) == (comm.rank > 0)
    group.close()


def test_groups_of_groups_and_the_parent_go_on_side_by_side(comm):
    with comm.split(0) as same, same.split(comm.rank) as alone:
        for _ in range(3):
            assert alone.all_reduce(comm.rank).item() == comm.rank
            assert same.all_reduce(1).item() == comm.size
            assert comm.all_reduce(1).item() == comm.size


@pytest.mark.ranks(2, 3)
def test_different_lists_are_the_same_error_everywhere(comm):
    with pytest.raises(MismatchError) as caught:
        comm.group([0] if comm.rank else [0, 1])
    assert "disagree on members; rank 0: group(members [0, 1]); " in str(caught.value)
    assert ": group(members [0])" in str(caught.value)
    comm.barrier()


@pytest.mark.parametrize("ranks", [[], [0, 0], [-1], [99], [0.5], 0, None, "a"])
def test_a_wrong_list_is_an_error(comm, ranks):
    with pytest.raises(InvalidArgumentError):
        comm.group(ranks)


@pytest.mark.parametrize("color", [-1, 0.5, "a", 1 << 70])
def test_a_wrong_color_is_an_error(comm, color):
    with pytest.raises(InvalidArgumentError, match="color is"):
        comm.split(color)


def test_a_closed_group_is_refused_and_can_be_closed_again(comm):
    group = comm.split(0)
    group.close()
    group.close()
    with pytest.raises(BrokenCommunicatorError, match="it was closed"):
        group.barrier()


def test_what_with_options_returns_closes_nothing(comm):
    with comm.with_options(timeout_s=20) as view:
        view.barrier()
    assert comm.all_reduce(1).item() == comm.size


def test_many_groups_one_after_the_other(comm):
    for _ in range(100):
        with comm.split(0) as group:
            assert group.all_reduce(np.ones(2)).tolist() == [comm.size] * 2


@pytest.mark.full
@pytest.mark.ranks(2)
def test_five_thousand_groups_one_after_the_other(comm):
    for _ in range(5000):
        with comm.split(0) as group:
            group.barrier()


@pytest.mark.ranks(2)
def test_when_the_mpi_has_no_more_communicators(comm):
    """MPICH has 2048; the others have more than are made here."""
    made, reason = [], ""
    while not reason and len(made) < 2100:
        try:
            made.append(comm.group([1, 0]))
        except ExhaustedError as error:
            reason = str(error)
    assert bool(reason) == (comm.topology.mpi.vendor == "MPICH")
    if reason:
        holds = MPIMessages.held
        assert f"this process holds {holds} open, close() those" in reason
        assert len(made) < holds < 2048
        with pytest.raises(ExhaustedError, match=f"holds {holds} open"):
            comm.group([0, 1], members_only=True)
        with pytest.raises(ExhaustedError, match=f"holds {holds} open"):
            comm.split(0)
    assert made[-1].all_reduce(1).item() == comm.all_reduce(1).item() == 2
    for group in made:
        group.close()
    with comm.group([1, 0]) as group:
        assert group.all_reduce(1).item() == 2
