"""Ranks with different numbers of steps."""

import numpy as np
import pytest

from collectives import InvalidArgumentError, UnsupportedError


def active(comm, step):
    """Return the ranks that still make calls in a step: rank r makes r + 1."""
    return [rank for rank in range(comm.size) if rank >= step]


def test_every_collective_goes_on_without_those_who_have_joined(comm):
    last = comm.size - 1
    with comm.join():
        for step in range(comm.rank + 1):
            there = active(comm, step)
            one = np.array([1.0 + comm.rank])
            ones = [1.0 + rank for rank in there]
            assert comm.all_reduce(one).item() == sum(ones)
            assert comm.all_reduce(one, "mean").item() == sum(ones) / len(ones)
            assert comm.all_reduce(one, "min").item() == min(ones)
            assert comm.all_reduce(one, "prod").item() == np.prod(ones)
            total = comm.reduce(one, root=last)
            assert (total is None) == (comm.rank != last)
            assert comm.scan(one).item() == sum(x for x in ones if x <= one)
            block = comm.reduce_scatter(np.ones(7), splits=[7] + [0] * last)
            assert (block == len(there)).all()
            assert comm.broadcast(one, last).item() == 1.0 + last
            assert comm.all_gather(one).tolist() == ones
            comm.gather(one, last)
            assert comm.scatter(np.arange(comm.size), last).item() == comm.rank
            got = comm.all_to_all(np.full(comm.size, comm.rank))
            assert got.tolist() == there
            many = comm.all_reduce_many([one, np.ones(3, np.int8)])
            assert (many[0].item(), many[1][0]) == (sum(ones), len(there))
            comm.barrier()
            objects = comm.all_gather_object(comm.rank)
            assert objects == [r if r in there else None for r in range(comm.size)]
    assert comm.all_reduce(1).item() == comm.size


def test_the_divisor_may_be_the_world(comm):
    with comm.join(divisor="world"):
        for step in range(comm.rank + 1):
            mean = comm.all_reduce(1.0, "mean").item()
            assert mean == pytest.approx(len(active(comm, step)) / comm.size)


@pytest.mark.ranks(2, 3)
def test_a_root_that_has_joined_is_the_same_error_everywhere(comm):
    with (
        pytest.raises(UnsupportedError, match="rank 0, has no more input"),
        comm.join(),
    ):
        for _ in range(comm.rank + 1):
            comm.broadcast(1.0, root=0)
    comm.barrier()


def test_groups_inside_are_an_error(comm):
    with pytest.raises(UnsupportedError, match="inside a join"), comm.join():
        comm.split(0)
    comm.barrier()


def test_joined_ranks_compare_the_results_of_the_others(comm):
    full = comm.with_options(check="full")
    with full.join():
        for step in range(comm.rank + 1):
            ones = full.all_reduce(np.ones(3, np.longdouble))
            assert (ones == len(active(comm, step))).all()
            full.all_gather([comm.rank])
    full.barrier()


@pytest.mark.ranks(2, 3)
def test_what_the_others_call_wrongly_is_an_error_for_joined_ranks_too(comm):
    with pytest.raises(InvalidArgumentError, match="unknown algorithm"), comm.join():
        if comm.rank:
            comm.all_reduce(1.0, algorithm="magic")
    assert comm.all_reduce(1).item() == comm.size


def test_a_join_needs_the_check(comm):
    unchecked = comm.with_options(check="off")
    with pytest.raises(UnsupportedError, match="join with check"), unchecked.join():
        pass


def test_a_wrong_divisor_is_an_error(comm):
    with (
        pytest.raises(InvalidArgumentError, match="divisor is 'all'"),
        comm.join("all"),
    ):
        pass


def test_the_fewest_steps(comm):
    assert comm.fewest_steps(3 + comm.rank) == 3
