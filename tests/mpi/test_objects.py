"""Objects by pickle, and the barrier."""

import time

import numpy as np
import pytest


class Point:
    """A class that both sides can import."""

    def __init__(self, x):
        self.x = x


OBJECTS = [None, 0, "text", b"", {"a": [1, 2, (3,)]}, {1, 2}, list(range(10_000))]


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_a_roots_object_reaches_everybody(comm, value):
    for root in range(comm.size):
        given = value if comm.rank == root else "nobody wants this"
        assert comm.broadcast_object(given, root) == value


def test_the_others_need_not_name_an_object(comm):
    if comm.rank == 0:
        assert comm.broadcast_object("mine") == "mine"
    else:
        assert comm.broadcast_object() == "mine"


def test_what_only_the_root_can_pickle_is_enough(comm):
    given = 5 if comm.rank == 0 else (lambda: None)
    assert comm.broadcast_object(given) == 5


def test_everybodys_object_reaches_everybody(comm):
    mine = {"rank": comm.rank, "array": np.arange(comm.rank * 100)}
    everyone = comm.all_gather_object(mine)
    assert [one["rank"] for one in everyone] == list(range(comm.size))
    assert [one["array"].size for one in everyone] == [
        rank * 100 for rank in range(comm.size)
    ]


def test_large_objects_of_different_size(comm):
    everyone = comm.all_gather_object(b"x" * (comm.rank * 3_000_000))
    assert [len(one) for one in everyone] == [
        rank * 3_000_000 for rank in range(comm.size)
    ]


def test_a_received_object_is_the_receivers_own(comm):
    value = comm.broadcast_object([comm.rank])
    value.append(comm.rank)
    assert value == [0, comm.rank]


def test_nobody_leaves_a_barrier_before_the_last_has_come(comm):
    for late in range(comm.size):
        if comm.rank == late:
            time.sleep(0.05)
        came = time.monotonic()  # the same clock in all processes of a host
        comm.barrier()
        left = time.monotonic()
        times = comm.all_gather_object((came, left))
        assert min(left for _, left in times) >= max(came for came, _ in times)
