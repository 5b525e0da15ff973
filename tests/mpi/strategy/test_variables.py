import numpy as np
import pytest

import strategy as distribute
from strategy import Variable, VariableAggregation, VariableSynchronization

NONE, SUM, MEAN, FIRST = VariableAggregation


def make(strategy, value, aggregation, on_read=False):
    kind = VariableSynchronization.ON_READ if on_read else VariableSynchronization.AUTO
    with strategy.scope():
        return Variable(
            np.float32(value), aggregation=aggregation, synchronization=kind
        )


def test_the_chiefs_initial_value_is_everybodys(strategy, rank):
    with strategy.scope():
        v = Variable(100.0 + rank)
        w = Variable(lambda: np.full((2, 2), rank, np.int64))
    assert len(v.values) == 1
    assert (v.numpy(), w.numpy().tolist()) == (100, [[0, 0], [0, 0]])


# A variable that starts at 1 is changed by r + 1 on replica r of two.
@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    ("aggregation", "assign", "add", "sub"),
    [
        (NONE, (1, 2), (2, 3), (0, -1)),
        (SUM, (3, 3), (4, 4), (-2, -2)),
        (MEAN, (1.5, 1.5), (2.5, 2.5), (-0.5, -0.5)),
        (FIRST, (1, 1), (2, 2), (0, 0)),
    ],
)
def test_assigning_in_a_replica(strategy, rank, aggregation, assign, add, sub):
    changes = {"assign": assign, "assign_add": add, "assign_sub": sub}
    for change, expected in changes.items():
        v = make(strategy, 1, aggregation)
        result = strategy.run(lambda v=v, c=change: getattr(v, c)(rank + 1.0))
        assert result == expected[rank]
        assert v.numpy() == expected[rank]


@pytest.mark.ranks(3)
def test_mean_of_three(strategy, rank):
    v = make(strategy, 1, MEAN)
    assert strategy.run(lambda: v.assign_add(rank + 1.0)) == 3


@pytest.mark.parametrize("aggregation", VariableAggregation)
def test_assigning_outside_replicas_takes_the_value_as_it_is(strategy, aggregation):
    v = make(strategy, 1, aggregation)
    v.assign(4.0)
    v.assign_add(1.0)
    assert (v.numpy(), strategy.run(v.numpy)) == (5, 5)


def test_integers_are_summed(strategy, comm, rank):
    with strategy.scope():
        v = Variable(np.int32(0), aggregation=SUM)
    strategy.run(lambda: v.assign(rank + 1))
    assert (v.numpy(), v.dtype) == (sum(range(1, comm.size + 1)), np.int32)


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    ("aggregation", "read"), [(SUM, (3, 3)), (MEAN, (1.5, 1.5)), (FIRST, (1, 1))]
)
def test_on_read_replicas_write_their_own_and_reading_combines(
    strategy, rank, aggregation, read
):
    v = make(strategy, 0, aggregation, on_read=True)
    strategy.run(lambda: v.assign(rank + 1.0))
    assert strategy.run(v.numpy) == rank + 1
    assert v.numpy() == read[rank]


@pytest.mark.ranks(2)
def test_on_read_sum_is_assigned_in_shares(strategy):
    v = make(strategy, 4, SUM, on_read=True)
    assert v.numpy() == 8
    v.assign(6.0)
    assert (strategy.run(v.numpy), v.numpy()) == (3, 6)
    assert strategy.reduce("MEAN", v, axis=None) == 3


def test_steps_of_reduced_gradients_keep_the_bits_equal(strategy, comm, rank):
    with strategy.scope():
        v = Variable(np.zeros(1000, np.float32))
    noise = np.random.default_rng(rank)

    def step():
        gradient = noise.normal(size=1000).astype(np.float32)
        mean = distribute.get_replica_context().all_reduce("MEAN", gradient)
        v.assign_sub(np.float32(0.1) * mean)

    for _ in range(5):
        strategy.run(step)
    assert v.numpy().any()
    assert len(set(comm.all_gather_object(v.numpy().tobytes()))) == 1
