"""What every message transport promises, on those made of threads."""

import threading

import numpy as np
import pytest
from harness.rendezvous import rendezvous

from collectives.transport.loopback import alone, run_threads
from collectives.waiting import wait_until

TRANSPORTS = {"loopback": lambda: lambda messages: messages, "rendezvous": rendezvous}


@pytest.fixture(params=TRANSPORTS)
def run(request):
    """Return a function that runs `body(messages)` on so many ranks."""

    def run(size, body):
        transport = TRANSPORTS[request.param]()
        return run_threads(size, lambda messages: body(transport(messages)))

    return run


def finish(*pending):
    for one in pending:
        wait_until(one.done, timeout_s=20, spins=0)


def number(value, count=1):
    return np.full(count, value, np.uint8)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_everybody_hears_from_everybody(run, size):
    def body(messages):
        got = [number(99) for _ in range(size)]
        peers = [peer for peer in range(size) if peer != messages.rank]
        receives = [messages.receive(peer, got[peer], 7) for peer in peers]
        sends = [messages.send(peer, number(10 + messages.rank), 7) for peer in peers]
        finish(*receives, *sends)
        return [int(got[peer][0]) for peer in peers]

    for rank, heard in enumerate(run(size, body)):
        assert heard == [10 + peer for peer in range(size) if peer != rank]


def test_messages_of_a_peer_and_tag_keep_their_order(run):
    def body(messages):
        peer = 1 - messages.rank
        got = [number(0) for _ in range(50)]
        receives = [messages.receive(peer, one, 3) for one in got]
        sends = [messages.send(peer, number(i), 3) for i in range(50)]
        finish(*receives, *sends)
        return [int(one[0]) for one in got]

    assert run(2, body) == [list(range(50))] * 2


def test_tags_do_not_meet(run):
    def body(messages):
        peer = 1 - messages.rank
        sends = [messages.send(peer, number(tag), tag) for tag in (1, 2, 3)]
        got = {tag: number(0) for tag in (3, 1, 2)}
        receives = [messages.receive(peer, got[tag], tag) for tag in got]
        finish(*receives, *sends)
        return {tag: int(one[0]) for tag, one in got.items()}

    assert run(2, body) == [{1: 1, 2: 2, 3: 3}] * 2


@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_any_length(run, count):
    def body(messages):
        got = number(0, count)
        peer = 1 - messages.rank
        receiving = messages.receive(peer, got, 0)
        finish(receiving, messages.send(peer, number(5, count), 0))
        return got.tolist() == [5] * count

    assert run(2, body) == [True, True]


def test_a_message_that_is_not_there_is_not_done(run):
    def body(messages):
        if messages.rank == 0:
            receiving = messages.receive(1, number(0), 0)
            early = [receiving.done() for _ in range(3)]  # rank 1 waits for us
            finish(messages.send(1, number(1), 0), receiving)
            return early
        finish(messages.receive(0, number(0), 0))
        finish(messages.send(0, number(1), 0))
        return None

    assert run(2, body)[0] == [False] * 3


def test_closing_twice_does_no_harm(run):
    def body(messages):
        messages.close()
        messages.close()
        return True

    assert run(2, body) == [True, True]


def test_loopback_copies_what_is_sent_at_once():
    def body(messages):
        if messages.rank == 0:
            data = number(1)
            sending = messages.send(1, data, 0)
            assert sending.done()
            data[0] = 2
            return None
        got = number(0)
        finish(messages.receive(0, got, 0))
        return int(got[0])

    assert run_threads(2, body)[1] == 1


def test_rendezvous_reads_the_senders_memory_late():
    transport, changed = rendezvous(), threading.Event()

    def body(messages):
        messages = transport(messages)
        if messages.rank == 0:
            data = number(1)
            sending = messages.send(1, data, 0)
            data[0] = 2
            changed.set()
            finish(sending)
            return None
        changed.wait(20)
        got = number(0)
        finish(messages.receive(0, got, 0))
        return int(got[0])

    assert run_threads(2, body)[1] == 2


def test_a_message_longer_than_the_room_for_it_is_an_error():
    def body(messages):
        if messages.rank == 0:
            messages.send(1, number(0, 4), 0)
        else:
            finish(messages.receive(0, number(0, 3), 0))

    with pytest.raises(AssertionError, match="rank 1 got 4 bytes from rank 0; wanted"):
        run_threads(2, body)


def test_the_lowest_failing_rank_is_reported():
    def body(messages):
        if messages.rank:
            raise KeyError(messages.rank)
        return "fine"

    with pytest.raises(KeyError, match="1"):
        run_threads(3, body)


def test_a_world_of_one():
    messages = alone()
    assert (messages.rank, messages.size) == (0, 1)
