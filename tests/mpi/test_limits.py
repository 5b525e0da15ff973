"""What is too long for one MPI call or message is cut, or goes another way.

No test has 2^31 bytes to spare: the limits are lowered.
"""

from collections import Counter

import numpy as np
import pytest
from harness.arrays import LAYOUTS
from harness.cases import cases, run

import collectives
from collectives import UnsupportedError
from collectives.algorithms import native, small
from collectives.calls import points
from collectives.tables import Table

LIMIT = 64


class Watched:
    """An mpi4py communicator that counts calls and refuses large arrays."""

    def __init__(self, comm, calls):
        self._comm, self._calls = comm, calls

    def __getattr__(self, name):
        method = getattr(self._comm, name)

        def call(*arguments, **named):
            for argument in arguments:
                buffer = argument[0] if isinstance(argument, list) else argument
                nbytes = buffer.nbytes if isinstance(buffer, np.ndarray) else 0
                assert nbytes <= LIMIT, f"{name} got {nbytes} bytes"
            self._calls[name] += 1
            return method(*arguments, **named)

        return call


@pytest.fixture
def calls(without_shared_memory, monkeypatch):
    """Return the calls of the MPI's own, which a table gives all that it can make."""
    counted, group = Counter(), without_shared_memory._group
    rules = dict.fromkeys(collectives.ALGORITHMS, ((0, "native"),))
    monkeypatch.setattr(group.tuning, "tables", (Table("", 1, 0, rules=rules),))
    monkeypatch.setattr(group, "native", Watched(group.native, counted))
    # Lengths that ranks tell each other are no arrays of the caller's.
    monkeypatch.setattr(native, "all_gather_rows", small.all_gather_rows)
    return counted


@pytest.mark.one_host
@pytest.mark.ranks(2, 3, 4, 5)
@pytest.mark.parametrize("collective", collectives.ALGORITHMS)
def test_beyond_the_limit_it_is_not_the_mpis_own(
    without_shared_memory, calls, collective
):
    low = without_shared_memory.with_options(mpi_limit_bytes=LIMIT)
    complaints, layouts = [], set()
    for dtype in ("int32", "float64"):
        for case in cases(collective, "auto", dtype, full=False, size=low.size):
            told, _ = run(low, case)
            complaints += [f"{case}: {told}"] if told else []
            layouts.add(case.layout)
    assert not complaints, "\n".join(complaints)
    assert layouts == set(LAYOUTS)
    assert calls, "below the limit it is the MPI's own"


def test_who_asks_for_the_mpis_own_is_told_the_limit(comm):
    low = comm.with_options(mpi_limit_bytes=LIMIT)
    assert low.all_reduce(np.ones(8), algorithm="native").sum() == 8 * comm.size
    with pytest.raises(UnsupportedError, match="72 bytes; one MPI call gets 64"):
        low.all_reduce(np.ones(9), algorithm="native")


def test_the_limit_is_what_mpi_can_count():
    assert collectives.Options().mpi_limit_bytes == 2**31 - 1
    assert points.PIECE_BYTES < 2**31


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("count", [0, 1, 12, 13, 1000])
def test_a_long_message_is_cut(comm, monkeypatch, count):
    sent, messages = [], comm._group.messages
    send = messages.send

    def watched(peer, data, tag):
        sent.append(data.nbytes)
        return send(peer, data, tag)

    monkeypatch.setattr(points, "PIECE_BYTES", 100)
    monkeypatch.setattr(messages, "send", watched)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    out = np.zeros(count)
    comm.exchange(
        [(right, np.arange(count) + comm.rank * 0.5, None), (left, None, out)]
    )
    assert (out == np.arange(count) + left * 0.5).all()
    header, *pieces = sent
    assert header == points.HEADER_BYTES
    assert max(pieces, default=0) <= 100
    assert sum(pieces) == count * 8
