import numpy as np
import pytest

import strategy as distribute


@pytest.fixture(scope="session")
def strategy(comm):
    return distribute.MultiWorkerMirroredStrategy()


@pytest.fixture
def rank(comm):
    return comm.rank


@pytest.fixture
def mine(comm):
    """Return a function that picks this rank's array of a list with one per rank."""

    def pick(arrays, dtype=np.float32):
        assert len(arrays) == comm.size
        return np.array(arrays[comm.rank], dtype)

    return pick
