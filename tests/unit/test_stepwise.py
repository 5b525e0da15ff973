"""The executor: what it puts on the wire, in which pieces, how many at a time."""

import threading
from collections import Counter

import numpy as np
import pytest
from harness.lockstep import everything, simulate
from harness.threads import run_ranks

from collectives import schedules
from collectives.algorithms.stepwise import IN_FLIGHT
from collectives.group import AGREEMENT_TAGS

SEGMENT_BYTES = 64


class Recorded:
    """Passes messages on and notes what data is sent, and how much is under way."""

    def __init__(self, messages):
        self._messages = messages
        self.rank, self.size = messages.rank, messages.size
        self.sent, self.flying, self.most = [], Counter(), Counter()
        self._lock = threading.Lock()

    def send(self, peer, data, tag):
        if tag < AGREEMENT_TAGS:
            self.sent.append(data.nbytes)
        return self._watched("send", self._messages.send(peer, data, tag), tag)

    def receive(self, peer, data, tag):
        return self._watched("receive", self._messages.receive(peer, data, tag), tag)

    def _watched(self, way, pending, tag):
        if tag >= AGREEMENT_TAGS:
            return pending
        self.flying[way] += 1
        self.most[way] = max(self.most[way], self.flying[way])
        return Watched(pending, lambda: self.flying.subtract([way]))

    def close(self):
        self._messages.close()


class Watched:
    """A pending message that calls back, once, when it is done."""

    def __init__(self, pending, over):
        self._pending, self._over, self._done = pending, over, False

    def done(self):
        if not self._done and self._pending.done():
            self._done = True
            self._over()
        return self._done


CALLS = {
    "all_reduce ring": (
        lambda comm, x: comm.all_reduce(x, algorithm="ring"),
        schedules.ring_all_reduce,
    ),
    "all_reduce recursive_doubling": (
        lambda comm, x: comm.all_reduce(x, algorithm="recursive_doubling"),
        schedules.recursive_doubling,
    ),
    "reduce tree": (
        lambda comm, x: comm.reduce(x, root=1, algorithm="tree"),
        lambda rank, size: schedules.tree_reduce(rank, size, 1),
    ),
    "reduce ring": (
        lambda comm, x: comm.reduce(x, root=1, algorithm="ring"),
        lambda rank, size: schedules.ring_reduce(rank, size, 1),
    ),
    "broadcast tree": (
        lambda comm, x: comm.broadcast(x, root=1, algorithm="tree"),
        lambda rank, size: schedules.tree_broadcast(rank, size, 1),
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_what_is_sent_is_what_the_schedule_says_in_segments(name, size):
    call, schedule = CALLS[name]
    block = 7 * SEGMENT_BYTES + 8  # bytes; seven segments and a bit
    recorders = {}

    def transport(messages):
        return recorders.setdefault(messages.rank, Recorded(messages))

    def body(comm):
        call(comm, np.ones(size * block // 8))

    run_ranks(size, body, transport=transport, segment_bytes=SEGMENT_BYTES)
    for rank in range(size):
        blocks = sum(step.send[1] - step.send[0] for step in schedule(rank, size))
        assert sum(recorders[rank].sent) == blocks * block
        assert max(recorders[rank].sent, default=0) <= SEGMENT_BYTES
        assert max(recorders[rank].most.values(), default=0) <= IN_FLIGHT
        assert set(recorders[rank].flying.values()) <= {0}, "something was not awaited"


def test_two_segments_are_under_way_where_there_are_two():
    recorders = {}

    def transport(messages):
        return recorders.setdefault(messages.rank, Recorded(messages))

    def body(comm):
        comm.all_reduce(np.ones(1000), algorithm="ring")

    run_ranks(2, body, transport=transport, segment_bytes=SEGMENT_BYTES)
    assert recorders[0].most["receive"] >= 2


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_operands_are_in_the_same_order_on_all_ranks(algorithm, size):
    """The sum of two NaN is one of them: which one, depends on the order."""

    def body(comm):
        bits = np.full(size, 0x7FC00000 + comm.rank, np.uint32)
        total = comm.all_reduce(bits.view(np.float32), algorithm=algorithm)
        assert np.isnan(total).all()
        return total.view(np.uint32).tolist()

    results = run_ranks(size, body)
    assert results == [results[0]] * size


def test_lockstep_and_executor_combine_in_the_same_order():
    """Numbers whose sum depends on the order and brackets: both get the same bits."""
    size = 5
    numbers = np.array([1.0, 1e16, -1e16, 3.0, 7e15])

    def add(term):
        return numbers[term] if isinstance(term, int) else add(term[0]) + add(term[1])

    for algorithm, make in (
        ("ring", schedules.ring_all_reduce),
        ("recursive_doubling", schedules.recursive_doubling),
    ):
        trace = simulate(
            [make(rank, size) for rank in range(size)],
            [everything(rank, size, -1) for rank in range(size)],
        )
        wanted = [add(value.term) for value in trace.blocks[0]]

        def body(comm, algorithm=algorithm):
            x = np.full(size, numbers[comm.rank])
            return comm.all_reduce(x, algorithm=algorithm).tolist()

        assert run_ranks(size, body) == [wanted] * size
