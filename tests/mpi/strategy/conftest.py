import numpy as np
import pytest

import strategy as distribute
from strategy.devices import gpus


@pytest.fixture(scope="session")
def strategy(comm):
    return distribute.MultiWorkerMirroredStrategy()


@pytest.fixture
def own_device(comm):
    """Return what the device of this rank is called, without any given."""
    there = len(gpus())
    return f"GPU:{comm.topology.local_rank % there}" if there else "CPU:0"


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
