"""Groups that their members make by themselves, while the others do something else."""

import numpy as np
import pytest

from collectives import InvalidArgumentError, MismatchError

SEVERAL = pytest.mark.ranks(2, 3, 4, 5)


@SEVERAL
def test_the_others_need_not_call(comm):
    ranks = [*range(comm.size - 1, comm.size // 2, -1), 0]
    if comm.rank in ranks:
        with comm.group(ranks, members_only=True) as group:
            assert group.all_gather_object(comm.rank) == ranks
            assert group.all_reduce(1).item() == len(ranks)
    comm.barrier()


@SEVERAL
def test_two_halves_at_once_and_again(comm):
    half = comm.size // 2
    mine = [r for r in range(comm.size) if (r < half) == (comm.rank < half)]
    for _ in range(20):
        with comm.group(mine, members_only=True) as group:
            assert group.all_reduce(comm.rank).item() == sum(mine)


@SEVERAL
def test_it_is_no_call_of_the_parent(comm):
    """The others may be ahead by a message, and make no other number of calls."""
    if comm.rank < 2:
        group = comm.group([1, 0], members_only=True)
        assert group.rank == 1 - comm.rank
        assert comm.all_reduce(1).item() == comm.size
        group.close()
    else:
        assert comm.all_reduce(1).item() == comm.size


@SEVERAL
def test_different_lists_are_the_same_error_everywhere(comm):
    everybody = list(range(comm.size))
    mine = everybody[::-1] if comm.rank == comm.size - 1 else everybody
    with pytest.raises(MismatchError) as caught:
        comm.group(mine, members_only=True)
    texts = comm.all_gather_object(str(caught.value))
    assert len(set(texts)) == 1, texts
    assert f"rank {comm.size - 1}: {everybody[::-1]}" in texts[0]
    assert f": {everybody};" in texts[0]


@pytest.mark.ranks(3, 4, 5)
def test_a_rank_that_only_some_lists_name_hears_of_it(comm):
    mine = [1, 2] if comm.rank == 1 else [0, 1, 2]
    if comm.rank < 3:
        with pytest.raises(MismatchError, match=r"ranks 0 2: \[0, 1, 2\]; rank 1: \["):
            comm.group(mine, members_only=True)
    comm.barrier()


@SEVERAL
def test_wrong_lists_are_errors_before_anything_moves(comm):
    for wrong in ([], [0, 0], [comm.size], 0, None, [(comm.rank + 1) % comm.size]):
        with pytest.raises(InvalidArgumentError):
            comm.group(wrong, members_only=True)
    assert comm.all_reduce(np.ones(2)).tolist() == [comm.size] * 2


def test_a_group_of_oneself_needs_nobody(comm):
    with comm.group([comm.rank], members_only=True) as alone:
        assert (alone.rank, alone.size) == (0, 1)
        assert alone.all_reduce(7).item() == 7
