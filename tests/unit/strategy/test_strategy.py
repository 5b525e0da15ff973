"""Strategies of one replica: the default one, and multi-worker without a launcher."""

import numpy as np
import pytest

import strategy as distribute
from strategy import PerReplica, ValueContext, get_strategy


@pytest.fixture(params=["default", "multi_worker"])
def strategy(request):
    if request.param == "default":
        return get_strategy()
    return distribute.MultiWorkerMirroredStrategy()


def test_one_replica(strategy):
    assert strategy.num_replicas_in_sync == 1
    assert strategy.extended.should_checkpoint


def test_run_passes_components_and_returns_bare(strategy):
    shared = object()
    result = strategy.run(
        lambda a, b, c: (a, b["x"], c),
        args=(PerReplica([1]), {"x": PerReplica([2])}),
        kwargs={"c": shared},
    )
    assert result == (1, 2, shared)


def test_run_needs_a_list_of_arguments(strategy):
    with pytest.raises(ValueError, match="args is 5"):
        strategy.run(lambda x: x, args=5)


@pytest.mark.parametrize(
    ("op", "axis", "expected"), [("SUM", 0, 3.0), ("mean", 0, 1.5), ("SUM", (0,), 3.0)]
)
def test_reduce_along_an_axis(strategy, op, axis, expected):
    assert strategy.reduce(op, np.array([1.0, 2.0]), axis) == expected
    assert strategy.reduce(op, PerReplica([np.array([1.0, 2.0])]), axis) == expected


def test_reduce_without_an_axis_changes_nothing(strategy):
    value = {"a": np.array([1.0, 2.0]), "b": [np.float32(3)]}
    for op in distribute.ReduceOp:
        result = strategy.reduce(op, value, axis=None)
        assert result["a"].tolist() == [1, 2]
        assert result["b"] == [3]


def test_mean_of_nothing_is_nan(strategy):
    assert np.isnan(strategy.reduce("MEAN", np.zeros(0, np.float32), axis=0))


@pytest.mark.parametrize(
    ("given", "mean"),
    [
        (np.int8, np.float32),
        (np.uint8, np.float32),
        (np.int32, np.float64),
        (np.int64, np.float64),
        (np.float16, np.float16),
        (np.float32, np.float32),
    ],
)
def test_dtypes(strategy, given, mean):
    value = np.array([1, 2], given)
    assert strategy.reduce("SUM", value, axis=0).dtype == given
    result = strategy.reduce("MEAN", value, axis=0)
    assert (result, result.dtype) == (1.5, mean)


def test_half_floats_are_added_wide_and_rounded_once(strategy):
    value = np.full(4096, 32, np.float16)  # their sum does not fit into float16
    assert strategy.reduce("MEAN", value, axis=0) == 32


def test_wrong_axes(strategy):
    with pytest.raises(TypeError, match="axis is"):
        strategy.reduce("SUM", np.ones(2), axis=[0])
    for value in (np.ones(2), np.float64(1)):
        with pytest.raises(ValueError, match="out of bounds"):
            strategy.reduce("MEAN", value, axis=1)


def test_wrong_op(strategy):
    with pytest.raises(ValueError, match="'MAX'"):
        strategy.reduce("MAX", 1.0, axis=None)


def test_gather_of_one(strategy):
    assert strategy.gather(np.arange(3), axis=0).tolist() == [0, 1, 2]


def test_local_results():
    strategy = distribute.MultiWorkerMirroredStrategy()
    assert strategy.experimental_local_results(5) == (5,)
    assert strategy.experimental_local_results([5, 6]) == ([5, 6],)
    nest = {"a": PerReplica([1]), "b": 2}
    assert strategy.experimental_local_results(nest) == ({"a": 1, "b": 2},)


def test_values_from_function():
    make = distribute.MultiWorkerMirroredStrategy()
    value = make.experimental_distribute_values_from_function(lambda context: context)
    assert isinstance(value, PerReplica)
    assert value.values == (ValueContext(0, 1),)
    bare = get_strategy().experimental_distribute_values_from_function(lambda c: c)
    assert bare == ValueContext(0, 1)


def test_replica_context_of_one():
    strategy = distribute.MultiWorkerMirroredStrategy()

    def replica():
        context = distribute.get_replica_context()
        nest = {"a": [np.float32(1), 2.0]}
        return (
            context.all_reduce("MEAN", nest),
            context.all_gather(np.arange(2), axis=0).tolist(),
            context.replica_id_in_sync_group,
        )

    assert strategy.run(replica) == ({"a": [1, 2]}, [0, 1], 0)


def test_batch_reduce_wants_pairs_with_destinations(strategy):
    extended = strategy.extended
    assert extended.batch_reduce_to("SUM", []) == []
    with pytest.raises(ValueError, match="tuple"):
        extended.batch_reduce_to("SUM", [[1.0, "CPU:0"]])
    for nowhere in ("", None, [1]):
        with pytest.raises(ValueError, match="destinations"):
            extended.reduce_to("SUM", 1.0, nowhere)


def test_a_nest_along_an_axis_is_refused_in_words(strategy):
    with pytest.raises(TypeError, match="each by itself"):
        strategy.reduce("MEAN", (PerReplica([np.ones(2)]), np.ones(2)), axis=0)


def test_options_that_are_none_are_refused_in_words():
    mirrored = distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(ValueError, match="wanted a CommunicationOptions"):
        mirrored.run(
            lambda: distribute.get_replica_context().all_reduce("SUM", np.ones(1), 3)
        )


@pytest.mark.parametrize(
    "make",
    [
        get_strategy,
        distribute.MultiWorkerMirroredStrategy,
        lambda: distribute.OneDeviceStrategy("CPU:0"),
        lambda: distribute.MirroredStrategy(["CPU:0"]),
        lambda: distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    ],
)
def test_results_are_the_replica_s_to_change(make):
    strategy = make()
    with strategy.scope():
        variable = distribute.Variable(np.ones(2))
    given = [np.ones(2) for _ in range(strategy.num_replicas_in_sync)]

    def replica():
        context = distribute.get_replica_context()
        mine = given[int(context.replica_id_in_sync_group)]
        for value in (mine, variable):
            for result in (
                context.all_reduce("SUM", value),
                context.all_reduce("MEAN", [value])[0],
                context.all_gather(value, axis=0),
            ):
                result *= 3

    strategy.run(replica)
    assert variable.numpy().tolist() == [1, 1]
    assert all(array.tolist() == [1, 1] for array in given)


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_dtypes_that_differ_are_refused_along_an_axis_too(op):
    mirrored = distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    value = PerReplica([np.ones(2), np.full(2, 1j)])
    with pytest.raises(distribute.StructureError, match="complex128"):
        mirrored.reduce(op, value, axis=0)
