"""Communicators that tests on several ranks want."""

from functools import partial

import pytest
from harness.plugin import those_on

import collectives
from collectives import Options, startup

# The host of each rank, by the number of ranks.
PLACEMENTS = {
    1: [(0,)],
    2: [(0, 1), (0, 0)],
    3: [(0, 0, 1), (0, 1, 0), (0, 1, 2)],
    4: [(0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 1), (0, 1, 2, 2)],
    5: [(0, 0, 1, 2, 2), (0, 1, 0, 1, 0), (1, 0, 2, 2, 1)],
}
SEGMENT = 1 << 12  # bytes: many rounds of short arrays


@pytest.fixture(scope="module")
def without_shared_memory(comm):
    """Return a communicator whose ranks must agree by messages, as between hosts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "shared_arena", lambda *arguments: (None, "a test"))
        made = collectives.from_mpi(comm.mpi, Options(timeout_s=30))
    yield made
    made.close()


@pytest.fixture(params=range(max(map(len, PLACEMENTS.values()))))
def ranks(request, comm):
    """Return a communicator on pretended hosts, where all goes in many rounds."""
    placements = PLACEMENTS[comm.size]
    host_of = placements[request.param % len(placements)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "_those_on_this_host", partial(those_on, host_of))
        made = collectives.from_mpi(
            comm.mpi, Options(timeout_s=30, segment_bytes=SEGMENT)
        )
    assert len(made.topology.hosts) == len(set(host_of))
    yield made
    made.close()
