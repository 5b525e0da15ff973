"""Where ranks are, as each of them sees it."""

import os

import pytest

from collectives.topology import Topology, single_host, usable_cores


@pytest.mark.parametrize(
    ("rank", "local_ranks", "local_rank"),
    [(0, (0, 2), 0), (1, (1, 3, 4), 0), (2, (0, 2), 1), (4, (1, 3, 4), 2)],
)
def test_local_ranks_are_those_of_the_same_host(rank, local_ranks, local_rank):
    topology = Topology(rank, ("a", "b"), (0, 1, 0, 1, 1), cores=2)
    assert topology.local_ranks == local_ranks
    assert topology.local_rank == local_rank
    assert topology.local_size == len(local_ranks)


def test_two_hosts_may_have_the_same_name():
    topology = Topology(1, ("node", "node"), (0, 1), cores=2)
    assert topology.local_ranks == (1,)


def test_a_single_host():
    topology = single_host(2, 4)
    assert topology.hosts == (os.uname().nodename,)
    assert topology.host_of == (0, 0, 0, 0)
    assert (topology.rank, topology.local_rank, topology.local_size) == (2, 2, 4)
    assert topology.cores == len(usable_cores())
    assert topology.mpi is None


def test_usable_cores_follow_the_affinity():
    before = os.sched_getaffinity(0)
    one = {min(before)}
    os.sched_setaffinity(0, one)
    try:
        assert usable_cores() == one
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cores() == before
