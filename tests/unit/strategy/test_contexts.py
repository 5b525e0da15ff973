import copy
import threading

import pytest

import strategy as distribute
from strategy import (
    MixedStrategiesError,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)


@pytest.fixture
def strategy():
    return distribute.MultiWorkerMirroredStrategy()


def where():
    return has_strategy(), in_cross_replica_context(), get_replica_context() is None


def test_outside(strategy):
    assert where() == (False, False, False)
    assert get_strategy().num_replicas_in_sync == 1
    assert get_replica_context().replica_id_in_sync_group == 0
    with get_strategy().scope():
        assert where() == (False, False, False)


def test_in_scope_run_merge_and_update(strategy):
    with strategy.scope() as entered:
        assert entered is strategy is get_strategy()
        assert where() == (True, True, True)
        variable = distribute.Variable(1.0)

    def replica():
        context = get_replica_context()
        assert context.strategy is strategy
        merged = context.merge_call(
            lambda merging, x: (merging is strategy, x, where()), [3]
        )
        return where(), merged

    ran, merged = strategy.run(replica)
    assert ran == (True, False, False)
    assert merged == (True, 3, (True, True, True))
    assert strategy.extended.update(variable, lambda v: where()) == (True, True, True)
    assert where() == (False, False, False)


def test_merge_call_works_outside_all_scopes():
    merged = get_replica_context().merge_call(lambda s, x: (s, x, where()), args=(4,))
    assert merged == (get_strategy(), 4, (False, True, True))


def test_the_same_scope_may_be_entered_twice(strategy):
    with strategy.scope(), strategy.scope():
        assert get_strategy() is strategy


def test_another_strategys_scope_is_refused(strategy):
    other = distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        for call in (
            lambda: other.scope().__enter__(),
            lambda: other.run(lambda: 1),
            lambda: other.reduce("SUM", 1.0, None),
        ):
            with pytest.raises(MixedStrategiesError, match="mixing different"):
                call()


def test_the_default_scope_must_not_nest(strategy):
    default = get_strategy()
    with strategy.scope(), pytest.raises(RuntimeError, match="must not nest"):
        default.scope().__enter__()


def test_inside_run_what_needs_all_replicas_is_refused(strategy):
    for call in (
        lambda: strategy.scope().__enter__(),
        lambda: strategy.run(lambda: 1),
        lambda: strategy.reduce("SUM", 1.0, None),
        lambda: strategy.gather([1.0], 0),
        lambda: strategy.extended.reduce_to("SUM", 1.0, "CPU:0"),
    ):
        with pytest.raises(RuntimeError, match=r"merge_call\(\)"):
            strategy.run(call)


def test_merge_call_on_another_replica_is_refused(strategy):
    stale = strategy.run(get_replica_context)
    with pytest.raises(RuntimeError, match="not the replica that runs here"):
        stale.merge_call(lambda strategy: None)


def test_a_new_thread_is_outside(strategy):
    seen = []
    with strategy.scope():
        thread = threading.Thread(target=lambda: seen.append(where()))
        thread.start()
        thread.join()
    assert seen == [(False, False, False)]


def test_an_error_leaves_the_scope_and_stays_as_it_is(strategy):
    def boom():
        raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        strategy.run(boom)
    assert where() == (False, False, False)


def test_a_strategy_is_not_copied(strategy):
    with pytest.raises(RuntimeError, match="copied"):
        copy.copy(strategy)
