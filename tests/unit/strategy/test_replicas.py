"""Several replicas in one process: their order, their meetings and their errors."""

import copy
import threading

import numpy as np
import pytest

import strategy as distribute
from strategy import (
    MergeCallError,
    MirroredStrategy,
    PerReplica,
    RunOptions,
    StructureError,
    Variable,
    VariableAggregation,
    get_replica_context,
)

CONCURRENT = RunOptions(concurrent=True)


def mirrored(count):
    return MirroredStrategy([f"CPU:{index}" for index in range(count)])


@pytest.fixture(params=[2, 3])
def strategy(request):
    return mirrored(request.param)


def number():
    return int(get_replica_context().replica_id_in_sync_group)


def values(result):
    assert isinstance(result, PerReplica)
    return [float(value) for value in result.values]


def test_replicas_take_turns_between_merge_calls():
    seen = []

    def replica():
        for step in "abc":
            seen.append(f"{step}{number()}")
            get_replica_context().merge_call(lambda strategy: seen.append("merge"))
        seen.append(f"end{number()}")

    mirrored(2).run(replica)
    assert seen == [
        *("a0", "a1", "merge", "b0", "b1", "merge", "c0", "c1", "merge"),
        *("end0", "end1"),
    ]


def test_what_replicas_do_together_is_done_by_the_calling_thread(strategy):
    threads = []

    def merge(strategy):
        threads.append(threading.current_thread())

    strategy.run(lambda: get_replica_context().merge_call(merge))
    assert threads == [threading.current_thread()]


def test_concurrent_replicas_run_at_the_same_time(strategy):
    count = strategy.num_replicas_in_sync
    together = threading.Barrier(count, timeout=20)  # one by one they would never pass

    def replica():
        together.wait()
        total = get_replica_context().all_reduce("SUM", np.float64(number()))
        together.wait()
        return total

    result = strategy.run(replica, options=CONCURRENT)
    assert values(result) == [count * (count - 1) / 2] * count


@pytest.mark.parametrize("options", [None, CONCURRENT])
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("merges", [0, 1])
def test_an_error_stops_the_others_and_comes_out_unchanged(
    strategy, options, bad, merges
):
    error, ended = KeyError("boom"), []

    def replica():
        try:
            for _ in range(merges):
                get_replica_context().merge_call(lambda strategy: None)
            if number() == bad:
                raise error
            get_replica_context().merge_call(lambda strategy: None)
            raise AssertionError("not reached")
        finally:
            ended.append(number())

    before = threading.active_count()
    with pytest.raises(KeyError) as raised:
        strategy.run(replica, options=options)
    assert raised.value is error
    assert threading.active_count() == before
    assert len(ended) == len(set(ended))
    assert values(strategy.run(lambda: np.float64(1))) == [1] * (
        strategy.num_replicas_in_sync
    )


@pytest.mark.parametrize("options", [None, CONCURRENT])
@pytest.mark.parametrize("who", [0, 1])
def test_numbers_of_merge_calls_that_differ_are_an_error(strategy, options, who):
    def replica():
        if number() == who:
            get_replica_context().merge_call(lambda strategy: None)

    with pytest.raises(MergeCallError, match="different number") as raised:
        strategy.run(replica, options=options)
    assert f"replica {who} is at merge_call" in str(raised.value)
    assert "at its end" in str(raised.value)
    strategy.run(lambda: get_replica_context().merge_call(lambda strategy: None))


def test_different_meetings_are_an_error_that_names_them():
    def replica():
        context = get_replica_context()
        if number():
            return context.all_gather(np.ones(1), axis=0)
        return context.all_reduce("SUM", np.ones(1))

    with pytest.raises(
        MergeCallError, match="0 is at all_reduce SUM, replica 1 is at all_gather"
    ):
        mirrored(2).run(replica)


def test_what_goes_wrong_in_a_meeting_can_be_caught_by_every_replica(strategy):
    def replica():
        context = get_replica_context()
        try:
            context.all_reduce("SUM", np.zeros(number() + 1))
        except StructureError:
            return context.all_reduce("SUM", np.float64(1))
        raise AssertionError("shapes that differ were reduced")

    count = strategy.num_replicas_in_sync
    assert values(strategy.run(replica)) == [count] * count


def test_nests_that_differ_between_replicas_are_an_error(strategy):
    def replica():
        return get_replica_context().all_reduce("SUM", [np.ones(1)] * (number() + 1))

    with pytest.raises(StructureError, match=r"replicas have \[1, 2.*as many on each"):
        strategy.run(replica)


def test_values_have_a_component_for_each_replica(strategy):
    count = strategy.num_replicas_in_sync
    value = PerReplica([np.ones(1)] * (count + 1))
    for act in (
        lambda: strategy.reduce("SUM", value, axis=None),
        lambda: strategy.gather(value, axis=0),
    ):
        with pytest.raises(StructureError, match=f"for {count} local"):
            act()


def test_merge_calls_merge_arguments_and_hand_out_parts(strategy):
    same = object()

    def merge(merging, one, shared, *, named):
        assert merging is strategy
        assert shared is same
        assert isinstance(one, PerReplica)
        return {"parts": one, "named": named, "all": 5}

    def replica():
        context = get_replica_context()
        return context.merge_call(merge, (number() + 1, same), {"named": "n"})

    count = strategy.num_replicas_in_sync
    result = strategy.run(replica)
    assert result["parts"].values == tuple(range(1, count + 1))
    assert (result["named"], result["all"]) == ("n", 5)


def test_only_the_running_replica_can_meet(strategy):
    kept = []
    strategy.run(lambda: kept.append(get_replica_context()))
    with pytest.raises(RuntimeError, match="not the replica that runs"):
        kept[0].merge_call(lambda strategy: None)


def test_replicas_see_the_contexts_of_the_caller(strategy):
    def replica():
        with np.errstate(divide="ignore"):
            get_replica_context().merge_call(lambda strategy: None)
            return np.geterr()["over"]

    with np.errstate(over="raise"):
        assert strategy.run(replica) == "raise"


def test_results_are_each_replicas_to_change(strategy):
    shared = np.ones(4)

    def replica():
        context = get_replica_context()
        reduced = context.all_reduce("MEAN", shared)
        gathered = context.all_gather(shared, axis=0)
        reduced += number()
        gathered += number()
        return reduced[0], gathered[0]

    reduced, gathered = strategy.run(replica)
    expected = [1.0 + index for index in range(strategy.num_replicas_in_sync)]
    assert values(reduced) == values(gathered) == expected
    assert shared.tolist() == [1] * 4


def test_a_variable_made_in_run_is_one_for_all(strategy):
    def replica():
        made = Variable(np.float32(number() + 5), aggregation=VariableAggregation.SUM)
        made.assign_add(1.0)
        return made

    made = strategy.run(replica)
    count = strategy.num_replicas_in_sync
    assert isinstance(made, Variable)
    assert [float(part) for part in made.values] == [5 + count] * count


def test_components_that_come_back_are_their_variable(strategy):
    with strategy.scope():
        variable = Variable(1.0)
    index = strategy.extended.value_container
    assert strategy.run(lambda: variable.values[number()]) is variable
    assert index(variable.values[0]) is variable
    assert index(5) == 5


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.complex64])
def test_reductions_agree_with_numpy(strategy, op, dtype):
    count = strategy.num_replicas_in_sync
    parts = [np.arange(6).reshape(2, 3).astype(dtype) * (r + 1) for r in range(count)]
    total = np.sum(parts, axis=0)
    expected = total / count if op == "MEAN" else total
    result = strategy.run(lambda: get_replica_context().all_reduce(op, parts[number()]))
    for part in result.values:
        np.testing.assert_allclose(part, expected, rtol=1e-3)
    assert strategy.reduce(op, PerReplica(parts), axis=None).shape == (2, 3)


def test_half_floats_are_added_wide():
    four = mirrored(4)
    big = PerReplica([np.float16(30000)] * 4)  # whose sum is beyond float16
    assert four.reduce("MEAN", big, axis=None) == np.float16(30000)


def test_what_are_no_numbers_is_refused(strategy):
    for parts in ([True] * 3, ["a"] * 3):
        value = PerReplica(
            [np.array(p) for p in parts[: strategy.num_replicas_in_sync]]
        )
        with pytest.raises(TypeError, match="wanted numbers"):
            strategy.reduce("SUM", value, axis=None)


def test_experimental_set_strategy_lasts_until_it_is_reset(strategy):
    other = mirrored(2)
    distribute.experimental_set_strategy(other)
    distribute.experimental_set_strategy(strategy)
    try:
        assert distribute.get_strategy() is strategy
        with strategy.scope(), pytest.raises(RuntimeError, match="inside"):
            distribute.experimental_set_strategy(None)
    finally:
        distribute.experimental_set_strategy(None)
    assert not distribute.has_strategy()


def test_a_deep_copy_is_another_strategy_over_the_same_replicas(strategy):
    twin = copy.deepcopy(strategy)
    assert twin is not strategy
    with strategy.scope():
        variable = Variable(1.0)
    with twin.scope(), pytest.raises(distribute.MixedStrategiesError):
        variable.read_value()
    assert values(twin.run(lambda: float(number()))) == values(
        strategy.run(lambda: float(number()))
    )
    for refused in (copy.copy, lambda it: copy.deepcopy(distribute.get_strategy())):
        with pytest.raises(RuntimeError):
            refused(strategy)


def test_an_interrupt_ends_the_run():
    two = mirrored(2)

    def replica():
        if number() == 0:
            raise KeyboardInterrupt
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt):
        two.run(replica)
    assert two.run(lambda: 1) == 1
