import numpy as np
import pytest

import collectives
import strategy as distribute
from strategy.packs import group_by_size

FLOAT_BYTES = 4


@pytest.mark.parametrize(
    ("counts", "bytes_per_pack", "packs"),
    [
        ([1] * 7, 8, [[1] * 3, [1] * 3, [1]]),
        ([2, 2, 2], 8, [[2, 2], [2]]),
        ([1, 100, 1, 1], 8, [[1, 100], [1, 1]]),
        ([100, 1, 1], 8, [[100], [1, 1]]),
        ([1, 1, 1], 1, [[1], [1], [1]]),
        ([5, 6], 0, [[5, 6]]),
        ([], 8, []),
    ],
)
def test_packs_overshoot_by_up_to_one_array(counts, bytes_per_pack, packs):
    arrays = [np.zeros(count, np.float32) for count in counts]
    made = group_by_size(arrays, bytes_per_pack)
    assert [[array.size for array in pack] for pack in made] == packs


def test_nccl_is_refused_with_the_reason_and_what_exists():
    options = distribute.CommunicationOptions(implementation="NCCL")
    with pytest.raises(collectives.UnsupportedError, match=r"NCCL.*no GPU.*AUTO RING"):
        distribute.MultiWorkerMirroredStrategy(communication_options=options)


def test_nccl_is_refused_for_one_call_too():
    strategy = distribute.MultiWorkerMirroredStrategy()
    options = distribute.CommunicationOptions(implementation="NCCL")
    with pytest.raises(collectives.UnsupportedError, match="no GPU"):
        strategy.extended.reduce_to("SUM", np.ones(1), "CPU:0", options)


@pytest.mark.parametrize("axis", [-1, 1, 5])
def test_gather_refuses_an_axis_that_is_not_there(axis):
    strategy = distribute.MultiWorkerMirroredStrategy()
    with pytest.raises(ValueError, match=f"axis is {axis}"):
        strategy.gather(np.ones(3), axis)


def test_gather_refuses_scalars_and_strings():
    strategy = distribute.MultiWorkerMirroredStrategy()
    with pytest.raises(ValueError, match="0 dimension"):
        strategy.gather(np.float32(1), 0)
    with pytest.raises(TypeError, match="wanted numbers"):
        strategy.gather(np.array(["a"]), 0)
