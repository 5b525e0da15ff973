"""Messages over MPI keep the promises of every message transport."""

import numpy as np
import pytest

from collectives.transport.mpi import MPIMessages
from collectives.waiting import wait_until


@pytest.fixture(scope="module")
def messages(comm):
    made = MPIMessages(comm.mpi.Dup())
    yield made
    made.close()


@pytest.fixture
def neighbours(messages):
    """Return the ranks to send to and to receive from."""
    rank, size = messages.rank, messages.size
    return (rank + 1) % size, (rank - 1) % size


def finish(*pending):
    for one in pending:
        wait_until(one.done, timeout_s=30, spins=0)


def number(value, count=1):
    return np.full(count, value, np.uint8)


def test_it_knows_its_place(comm, messages):
    assert (messages.rank, messages.size) == (comm.rank, comm.size)


def test_messages_of_a_peer_and_tag_keep_their_order(messages, neighbours):
    right, left = neighbours
    got = [number(255) for _ in range(100)]
    receives = [messages.receive(left, one, 3) for one in got]
    sends = [messages.send(right, number(i), 3) for i in range(100)]
    finish(*receives, *sends)
    assert [int(one[0]) for one in got] == list(range(100))


def test_tags_do_not_meet(messages, neighbours):
    right, left = neighbours
    tags = (1, 2, 0x7FFF)  # the last is the highest that MPI promises
    sends = [messages.send(right, number(tag % 101), tag) for tag in tags]
    got = {tag: number(0) for tag in reversed(tags)}
    finish(*(messages.receive(left, got[tag], tag) for tag in got), *sends)
    assert {tag: int(got[tag][0]) for tag in tags} == {tag: tag % 101 for tag in tags}


@pytest.mark.parametrize("count", [0, 1, 100, 1_000_000])
def test_any_length(messages, neighbours, count):
    right, left = neighbours
    got = number(0, count)
    receiving = messages.receive(left, got, 0)
    finish(receiving, messages.send(right, number(5, count), 0))
    assert (got == 5).all()


def test_read_only_memory_can_be_sent(messages, neighbours):
    right, left = neighbours
    data, got = np.frombuffer(b"abc", np.uint8), number(0, 3)
    finish(messages.receive(left, got, 0), messages.send(right, data, 0))
    assert got.tobytes() == b"abc"


def test_closing_twice_does_no_harm(comm):
    made = MPIMessages(comm.mpi.Dup())
    made.close()
    made.close()
