"""A plan is made once for each signature, and serves all calls that have it."""

import numpy as np
from harness.threads import run_ranks

from collectives import plans


def count_plans(monkeypatch, body):
    """Return how many plans each of two ranks made."""
    made = []
    really_make = plans.Planner._make

    def counted(self, *arguments):
        made.append(self.group.rank)
        return really_make(self, *arguments)

    monkeypatch.setattr(plans.Planner, "_make", counted)

    def opened(comm):
        comm.all_reduce(1.0)  # opens the window, after which all is planned anew
        made.clear()
        comm.barrier()
        body(comm)

    run_ranks(2, opened)
    return [made.count(rank) for rank in range(2)]


def test_the_same_signature_is_planned_once(monkeypatch):
    def body(comm):
        for _ in range(5):
            comm.all_reduce(np.ones(3))
            comm.all_reduce_many([np.ones(2), np.ones(2)])

    assert count_plans(monkeypatch, body) == [2, 2]


def test_another_signature_is_another_plan(monkeypatch):
    def body(comm):
        comm.all_reduce(np.ones(3))
        comm.all_reduce(np.ones((3, 1)))
        comm.all_reduce(np.ones(3, int))
        comm.all_reduce(np.ones(3), "max")
        comm.all_reduce(np.ones(3), algorithm="ring")
        comm.reduce(np.ones(3), root=0)
        comm.reduce(np.ones(3), root=1)
        comm.broadcast(np.ones(3))

    assert count_plans(monkeypatch, body) == [8, 8]


def test_plans_do_not_pile_up(monkeypatch):
    """A program may make calls of ever new sizes for ever."""
    monkeypatch.setattr(plans, "PLANS_KEPT", 5)

    def body(comm):
        for size in range(20):
            assert comm.all_reduce(np.ones(size)).tolist() == [2] * size
        assert len(comm._planner.plans) <= 5

    assert count_plans(monkeypatch, body) == [20, 20]
