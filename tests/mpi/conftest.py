"""Communicators that tests on several ranks want."""

import pytest

import collectives
from collectives import Options, startup


@pytest.fixture(scope="module")
def without_shared_memory(comm):
    """Return a communicator whose ranks must agree by messages, as between hosts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "shared_arena", lambda *arguments: (None, "a test"))
        made = collectives.from_mpi(comm.mpi, Options(timeout_s=30))
    yield made
    made.close()
