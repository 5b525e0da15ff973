"""Lanes: every one has a carrier on each host, and all hosts agree on who it is."""

from collections import Counter

import pytest

from collectives.lanes import around_hosts, lanes_of
from collectives.topology import Topology

PLACEMENTS = [(0,), (0, 0), (0, 1), (0, 1, 0), (0, 0, 1, 2, 2), (1, 0, 2, 2, 1, 2, 2)]


def seen_by_all(host_of, most=0):
    names = tuple(f"node{host}" for host in range(max(host_of) + 1))
    return [
        lanes_of(Topology(rank, names, host_of, cores=1), most)
        for rank in range(len(host_of))
    ]


@pytest.mark.parametrize("host_of", PLACEMENTS)
@pytest.mark.parametrize("most", [0, 1, 2])
def test_each_lane_has_one_carrier_on_each_host(host_of, most):
    views = seen_by_all(host_of, most)
    largest = max(Counter(host_of).values())
    assert {view.count for view in views} == {min(largest, most or largest)}
    for host in set(host_of):
        carried = Counter[int]()
        for rank, view in enumerate(views):
            if host_of[rank] == host:
                carried.update(view.mine)
                for lane in range(view.count):
                    here = view.carrier(host, lane) == rank
                    assert here == (lane in view.mine)
                    assert here == (view.place_of(lane) == view.place)
        assert carried == Counter(range(views[0].count))


@pytest.mark.parametrize("host_of", PLACEMENTS)
def test_no_rank_carries_much_more_than_another_of_its_host(host_of):
    for rank, view in enumerate(seen_by_all(host_of)):
        ranks = Counter(host_of)[host_of[rank]]
        assert len(view.mine) in (view.count // ranks, -(-view.count // ranks))


@pytest.mark.parametrize("host_of", PLACEMENTS)
def test_all_other_hosts_are_far(host_of):
    for rank, view in enumerate(seen_by_all(host_of)):
        assert {*view.far, host_of[rank]} == set(host_of)
        assert len(view.far) == len(set(host_of)) - 1


def test_around_hosts_keeps_the_ranks_of_a_host_together():
    assert around_hosts((0, 1, 0, 1)) == (0, 2, 1, 3)
    assert around_hosts((1, 0, 2, 0)) == (1, 3, 0, 2)
    assert around_hosts((0, 0, 0)) == (0, 1, 2)
