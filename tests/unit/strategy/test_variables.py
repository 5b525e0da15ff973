import numpy as np
import pytest

import strategy as distribute
from strategy import (
    MixedStrategiesError,
    PerReplica,
    Variable,
    VariableAggregation,
    VariableSynchronization,
    get_strategy,
)
from strategy.variable_rules import (
    AGGREGATING,
    CROSS,
    MIRRORED,
    ON_READ,
    PLAIN,
    READS,
    REPLICA,
    UPDATE,
    WRITES,
)

ON_READ_SYNC = VariableSynchronization.ON_READ
SUM, MEAN = VariableAggregation.SUM, VariableAggregation.MEAN
FIRST, NONE = VariableAggregation.ONLY_FIRST_REPLICA, VariableAggregation.NONE


@pytest.fixture
def two():
    return distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def variable(strategy, value, **kwargs):
    with strategy.scope():
        return Variable(value, **kwargs)


def components(variable):
    return [value.tolist() for value in variable.values]


def test_the_tables_have_a_rule_for_every_case():
    kinds = (MIRRORED, ON_READ, AGGREGATING)
    rows = {(kind, where) for kind in kinds for where in (REPLICA, CROSS, UPDATE)}
    rows.add((PLAIN, UPDATE))
    for table in (WRITES, READS):
        assert set(table) == rows
        assert all(set(row) == set(VariableAggregation) for row in table.values())


def test_a_variable_is_an_array_in_expressions():
    v = Variable(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), name="v")
    assert (v.shape, v.dtype, len(v), v.trainable) == ((2, 2), np.float32, 2, True)
    assert (v + 1).dtype == np.float32
    assert (1 - v).tolist() == [[0, -1], [-2, -3]]
    assert (np.ones((1, 2)) @ v).tolist() == [[4, 6]]
    assert (v @ v.T)[0, 0] == 5
    assert np.mean(v) == 2.5
    assert np.asarray(v, np.float64).dtype == np.float64
    assert v[1].tolist() == [3, 4]
    assert float(Variable(2.5)) == 2.5
    assert "'v'" in repr(v)


def test_what_was_read_keeps_its_values():
    v = Variable([1.0, 2.0])
    before = v.numpy()
    v.assign_add([1.0, 1.0])
    assert (before.tolist(), v.numpy().tolist()) == ([1, 2], [2, 3])
    with pytest.raises(ValueError, match="read-only"):
        before[0] = 9


def test_what_was_assigned_is_copied():
    given = np.array([1.0, 2.0])
    v = Variable(given)
    w = Variable([0.0, 0.0])
    w.assign(given)
    given[0] = 9
    assert v.numpy().tolist() == w.numpy().tolist() == [1, 2]


def test_operators_do_not_assign():
    v = Variable(1.0)
    with pytest.raises(TypeError, match="assign_add"):
        v += 1


def test_a_function_gives_the_initial_value():
    assert Variable(lambda: np.arange(3), dtype=np.float32).dtype == np.float32


def test_shape_and_dtype_are_kept():
    v = Variable(np.zeros(2, np.int32))
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(3,\)"):
        v.assign(np.zeros(3, np.int32))
    with pytest.raises(TypeError, match="int32, got float64"):
        v.assign([0.5, 0.5])
    v.assign_add(np.ones(2, np.int64))
    assert v.dtype == np.int32


@pytest.mark.parametrize(
    "wrong",
    [
        {"aggregation": "SUM"},
        {"synchronization": "ON_READ"},
        {"synchronization": VariableSynchronization.NONE},
        {"aggregation": MEAN, "dtype": np.int32},
    ],
)
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match="variable 'Variable'"):
        Variable(1, **wrong)


@pytest.mark.parametrize("aggregation", VariableAggregation)
def test_with_one_replica_all_aggregations_are_alike(aggregation):
    one = distribute.MultiWorkerMirroredStrategy()
    for strategy in (get_strategy(), one):
        v = variable(strategy, 1.0, aggregation=aggregation)
        assert strategy.run(lambda v=v: v.assign_add(2.0)) == 3
        assert v.assign_sub(1.0) == v.numpy() == 2


def test_a_variable_made_outside_scopes_is_usable_inside(two):
    v = Variable(1.0)
    with two.scope():
        assert v.assign_add(1.0) == 2


def test_a_variable_of_another_strategy_is_refused(two):
    v = variable(two, 1.0)
    with distribute.MultiWorkerMirroredStrategy().scope():
        for use in (v.read_value, lambda: v.assign(1.0), lambda: v + 1):
            with pytest.raises(MixedStrategiesError):
                use()


@pytest.mark.parametrize("aggregation", VariableAggregation)
def test_cross_replica_assign_writes_every_component(two, aggregation):
    v = variable(two, 1.0, aggregation=aggregation)
    assert components(v) == [1, 1]
    assert v.assign(4.0).values == (4, 4)
    v.assign_add(PerReplica([1.0, 2.0]))
    assert components(v) == [5, 6]  # as TensorFlow lets it
    assert v.read_value() == 5


@pytest.mark.parametrize("aggregation", VariableAggregation)
def test_update_writes_one_component_at_a_time(two, aggregation):
    v = variable(two, 1.0, aggregation=aggregation)
    two.extended.update(v, lambda v, x: v.assign(x), args=(PerReplica([3.0, 4.0]),))
    assert components(v) == [3, 4]
    result = two.extended.update(
        v, lambda v, x: {"a": x}, args=(PerReplica([2, 3]),), group=False
    )
    assert result == {"a": (2, 3)}


def test_update_wants_a_variable_of_its_strategy(two):
    with pytest.raises(ValueError, match="not a variable of"):
        two.extended.update(np.ones(1), lambda v: v)


def test_on_read_sums_what_the_replicas_hold(two):
    v = variable(two, 4.0, synchronization=ON_READ_SYNC, aggregation=SUM)
    assert v.read_value() == 8
    v.assign(6.0)
    assert (components(v), v.read_value()) == ([3, 3], 6)
    with pytest.raises(ValueError, match="assign_add outside a replica"):
        v.assign_add(1.0)
    two.extended.update(v, lambda v: v.assign(6.0))
    assert (components(v), float(v)) == ([6, 6], 12)


@pytest.mark.parametrize(("value", "shares"), [(7, [4, 3]), (-7, [-3, -4])])
def test_on_read_integer_shares_add_up_again(two, value, shares):
    v = variable(two, np.int32(0), synchronization=ON_READ_SYNC, aggregation=SUM)
    assert v.assign(np.int32(value)) == value
    assert (components(v), v.read_value()) == (shares, value)


def test_on_read_mean_first_and_none(two):
    mean = variable(two, 1.0, synchronization=ON_READ_SYNC, aggregation=MEAN)
    mean.assign_add(6.0)
    mean.assign_add(PerReplica([0.0, 4.0]))
    assert (components(mean), mean.read_value()) == ([7, 11], 9)
    first = variable(two, 1.0, synchronization=ON_READ_SYNC, aggregation=FIRST)
    first.assign(PerReplica([1.0, 5.0]))
    assert first.read_value() == 1
    none = variable(two, 1.0, synchronization=ON_READ_SYNC, aggregation=NONE)
    none.assign(2.0, read_value=False)
    assert components(none) == [2, 2]
    with pytest.raises(ValueError, match="aggregation NONE"):
        none.read_value()


def test_a_python_integer_fits_an_unsigned_variable():
    for dtype in (np.uint8, np.uint32, np.uint64):
        v = Variable(np.zeros(2, dtype).sum(dtype=dtype))
        v.assign_add(3)
        v.assign_sub(1)
        assert (v.numpy(), v.dtype) == (2, dtype)
    with pytest.raises(OverflowError):
        v.assign(-1)
    with pytest.raises(TypeError, match="got float64"):
        v.assign(1.0)


def test_the_mean_of_a_bfloat16_variable():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    strategy = distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = Variable(
            np.zeros(2), dtype=bfloat16, aggregation=distribute.VariableAggregation.MEAN
        )
    strategy.run(
        lambda: v.assign_add(
            np.full(2, distribute.get_replica_context().replica_id_in_sync_group)
        )
    )
    assert v.numpy().tolist() == [0.5, 0.5]
    assert v.dtype == bfloat16


def test_indices_are_integers():
    assert distribute.IndexedSlices(np.zeros((0, 2)), []).indices.dtype == np.int64
    with pytest.raises(TypeError, match="float64"):
        distribute.IndexedSlices(np.zeros((1, 2)), [0.0])
