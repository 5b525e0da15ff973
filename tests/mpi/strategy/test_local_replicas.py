"""Several replicas on each rank: added up there, then one collective goes across."""

import numpy as np
import pytest

import collectives
import strategy as distribute
from strategy import IndexedSlices, PerReplica, Variable, gradients
from strategy import VariableAggregation as Aggregation

LOCAL = [1, 2, 3]


@pytest.fixture(scope="module", params=LOCAL)
def several(request):
    names = [f"CPU:{index}" for index in range(request.param)]
    return distribute.MultiWorkerMirroredStrategy(devices=names)


@pytest.fixture
def count(several):
    return several.num_replicas_in_sync


def number():
    return int(distribute.get_replica_context().replica_id_in_sync_group)


def local(strategy, result):
    """Return each local replica's result."""
    parts = strategy.experimental_local_results(result)
    assert len(parts) == len(strategy.extended.replica_ids)
    return parts


def test_replicas_are_numbered_through_the_ranks(several, comm, count):
    ids = comm.all_gather_object(several.extended.replica_ids)
    assert [number for rank in ids for number in rank] == list(range(count))
    assert local(several, several.run(number)) == several.extended.replica_ids
    devices = several.extended.worker_devices
    assert all(f"/task:{comm.rank}/" in device for device in devices)
    assert len(set(devices)) == len(several.extended.replica_ids)


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.complex128])
@pytest.mark.parametrize("pack", [0, 1, 1 << 20])
def test_all_reduce(several, count, op, dtype, pack):
    options = distribute.CommunicationOptions(bytes_per_pack=pack)

    def replica():
        value = {"a": np.full((2, 3), number()).astype(dtype), "b": [np.float32(1)]}
        return distribute.get_replica_context().all_reduce(op, value, options)

    result = several.run(replica)
    total = sum(range(count)) / (count if op == "MEAN" else 1)
    for a in local(several, result["a"]):
        np.testing.assert_allclose(a, np.full((2, 3), total), rtol=1e-3)
    for b in local(several, result["b"][0]):
        assert b == (1 if op == "MEAN" else count)


def test_the_results_are_the_same_bits_everywhere(several, comm):
    def replica():
        rng = np.random.default_rng(number())
        x = rng.standard_normal(1000).astype(np.float32)
        return distribute.get_replica_context().all_reduce("MEAN", x)

    mine = [part.tobytes() for part in local(several, several.run(replica))]
    everywhere = comm.all_gather_object(mine)
    assert len({part for rank in everywhere for part in rank}) == 1


def test_half_floats_are_added_wide_and_rounded_once(several, count):
    value = PerReplica([np.float16(60000)] * len(several.extended.replica_ids))
    assert several.reduce("MEAN", value, axis=None) == np.float16(60000)


def test_reduce_and_gather(several, count):
    ids = several.extended.replica_ids
    rows = PerReplica([np.full(number + 1, number, np.float32) for number in ids])
    total = sum(number * (number + 1) for number in range(count))
    assert several.reduce("SUM", rows, axis=0) == total
    elements = count * (count + 1) / 2
    assert several.reduce("MEAN", rows, axis=0) == np.float32(total / elements)
    expected = [number for number in range(count) for _ in range(number + 1)]
    assert several.gather(rows, axis=0).tolist() == expected
    gathered = several.run(
        lambda: distribute.get_replica_context().all_gather(
            np.full(number() + 1, number()), axis=0
        )
    )
    for part in local(several, gathered):
        assert part.tolist() == expected


def test_a_plain_value_is_each_replicas_contribution(several, comm, count):
    if comm.size == 1 < count:
        with pytest.raises(ValueError, match="no components"):
            several.reduce("SUM", 2.0, axis=None)
    else:
        assert several.reduce("SUM", 2.0, axis=None) == 2 * count
    assert several.reduce("MEAN", 2.0, axis=None) == 2


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_slices_come_in_the_order_of_replicas(several, count, op):
    def replica():
        r = number()
        slices = IndexedSlices(np.full((r + 1, 1), r), list(range(r + 1)), [9, 1])
        return distribute.get_replica_context().all_reduce(op, slices)

    for part in local(several, several.run(replica)):
        expected = [r for r in range(count) for _ in range(r + 1)]
        by = count if op == "MEAN" else 1
        assert (part.values.ravel() * by).tolist() == pytest.approx(expected)
        assert part.indices.tolist() == [i for r in range(count) for i in range(r + 1)]


AFTER = {  # of assign_add(r + 1) to 1: the rule, and what it gives
    Aggregation.SUM: lambda n: 1 + n * (n + 1) / 2,
    Aggregation.MEAN: lambda n: 1 + (n + 1) / 2,
    Aggregation.ONLY_FIRST_REPLICA: lambda n: 2,
}


@pytest.mark.parametrize("aggregation", AFTER)
@pytest.mark.parametrize("on_read", [False, True])
def test_variables(several, comm, count, aggregation, on_read):
    sync = distribute.VariableSynchronization
    with several.scope():
        variable = Variable(
            np.float32(1 + comm.rank),  # the chief's value is everyone's
            aggregation=aggregation,
            synchronization=sync.ON_READ if on_read else sync.ON_WRITE,
        )
    assert [float(part) for part in variable.values] == [1] * len(variable.values)
    several.run(lambda: variable.assign_add(np.float32(number() + 1)))
    expected = AFTER[aggregation](count)
    if on_read and aggregation is Aggregation.SUM:
        expected += count - 1  # each holds the initial value
    assert variable.read_value() == np.float32(expected)
    parts = [float(part) for part in variable.values]
    ids = several.extended.replica_ids
    wanted = [number + 2 for number in ids] if on_read else [expected] * len(ids)
    assert parts == wanted


def test_scattered_rows_are_those_of_all_replicas(several, count):
    with several.scope():
        variable = Variable(np.zeros((count, 2)), aggregation=Aggregation.SUM)
    several.run(
        lambda: variable.scatter_add(IndexedSlices(np.ones((2, 2)), [number(), 0]))
    )
    expected = np.ones((count, 2))
    expected[0] = count + 1
    for part in variable.values:
        assert part.tolist() == expected.tolist()


def test_update_reaches_every_component(several, count):
    with several.scope():
        variable = Variable(1.0)
    several.extended.update(variable, lambda v, x: v.assign_add(x), args=(2.0,))
    assert [float(part) for part in variable.values] == [3] * len(variable.values)


@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_go_back_through_a_gather(several, count, axis):
    def replica():
        r = number()
        x = np.ones((r + 1, 2) if axis == 0 else (2, r + 1))
        y, backward = gradients.all_gather(x, axis)
        whole = np.arange(y.size).reshape(y.shape) * 1.0
        gradient = backward(whole)
        start = r * (r + 1) // 2
        part = np.moveaxis(whole, axis, 0)[start : start + r + 1]
        assert np.moveaxis(gradient, axis, 0).tolist() == (part * count).tolist()

    several.run(replica)


def test_what_one_replica_does_wrong_is_an_error_on_every_rank(several, comm, count):
    def replica():
        length = 2 + (number() == count - 1)
        return distribute.get_replica_context().all_reduce("SUM", np.ones(length))

    if count == 1:
        return
    with pytest.raises(ValueError, match="shape"):
        several.run(replica)
    assert several.reduce("MEAN", 1.0, axis=None) == 1


@pytest.mark.ranks(2, 3)
def test_a_wrong_axis_on_one_rank_is_an_error_on_every_rank(several, comm):
    value = PerReplica([np.ones(2)] * len(several.extended.replica_ids))
    with pytest.raises(ValueError, match="axis is 3"):
        several.gather(value, 3 if comm.rank else 0)
    with pytest.raises(ValueError, match="axis is -1"):
        several.gather(value, -1)
    with pytest.raises((TypeError, collectives.MismatchError), match="wanted numbers"):
        several.gather(PerReplica([np.array(["a"])] * len(value.values)), 0)
    assert several.reduce("MEAN", 1.0, axis=None) == 1


@pytest.mark.ranks(2, 3)
def test_ranks_have_as_many_devices_each(comm):
    names = [f"CPU:{index}" for index in range(1 + comm.rank)]
    with pytest.raises(distribute.ClusterError, match=r"rank 0 has 1 device.*1 has 2"):
        distribute.MultiWorkerMirroredStrategy(devices=names)
    with pytest.raises(distribute.ClusterError, match="rank 1: devices are"):
        distribute.MultiWorkerMirroredStrategy(
            devices=["CPU:0", "CPU:0"] if comm.rank == 1 else None
        )


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_registered_packs_are_reduced_where_they_are(several, comm, count, op, dtype):
    likes = [np.zeros(5, dtype), np.zeros((2, 2), dtype)]
    packs = [comm.packs(likes) for _ in several.extended.replica_ids]
    first = several.extended.replica_ids[0]

    def replica():
        views = packs[number() - first].next()
        for view in views:
            view[...] = number()
        result = distribute.get_replica_context().all_reduce(op, views)
        assert result is views
        return [float(view.sum()) for view in views]

    total = sum(range(count)) / (count if op == "MEAN" else 1)
    five, four = several.run(replica)
    for at, part in enumerate(local(several, five)):
        assert part == pytest.approx(5 * total)
        assert local(several, four)[at] == pytest.approx(4 * total)


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("pack", [0, 1, 20, 1 << 20])
def test_a_reduction_that_was_started_comes_pack_by_pack(several, count, op, pack):
    options = distribute.CommunicationOptions(bytes_per_pack=pack)
    total = sum(range(count)) / (count if op == "MEAN" else 1)

    def replica():
        context = distribute.get_replica_context()
        value = [np.full(at + 1, number() + at, np.float32) for at in range(5)]
        reduction = context.start_all_reduce(op, value, options)
        places = []
        for place, array in reduction:
            its = total + place * (1 if op == "MEAN" else count)
            assert array.tolist() == [np.float32(its)] * (place + 1)
            array += 100  # this replica's own
            places.append(place)
        nest = context.start_all_reduce(op, {"b": np.float64(1), "a": [np.int32(2)]})
        found = nest.wait()
        assert found["b"] * 2 == found["a"][0]
        return places

    assert several.run(replica) == [4, 3, 2, 1, 0]


@pytest.mark.ranks(2, 3)
def test_a_started_reduction_that_cannot_be_is_an_error_on_every_rank(several, comm):
    def replica():
        context = distribute.get_replica_context()
        length = 3 if number() == 1 else 2
        return context.start_all_reduce("SUM", np.ones(length)).wait()

    with pytest.raises(ValueError, match="shape"):
        several.run(replica)
    assert several.reduce("MEAN", 1.0, axis=None) == 1


@pytest.mark.parametrize("kind", ["ON_WRITE", "ON_READ"])
def test_of_a_variable_each_replica_gives_what_it_reads(several, count, kind):
    ids = list(range(count))
    with several.scope():
        v = Variable(
            np.zeros(1),
            synchronization=distribute.VariableSynchronization[kind],
            aggregation=Aggregation.NONE,
        )

    def replica():
        v.assign(np.full(1, number()))
        context = distribute.get_replica_context()
        total = context.all_reduce("SUM", v)
        (started,) = context.start_all_reduce("SUM", [v]).wait()
        return total, started, context.all_gather({"v": v}, axis=0)["v"]

    totals, starteds, gathereds = several.run(replica)
    for total, started, gathered in zip(
        local(several, totals),
        local(several, starteds),
        local(several, gathereds),
        strict=True,
    ):
        assert total.tolist() == started.tolist() == [sum(ids)]
        assert gathered.tolist() == ids


@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_bfloat16_is_added_along_an_axis_in_float32(several, count, op):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    value = several.experimental_distribute_values_from_function(
        lambda context: np.ones(1024, bfloat16)
    )
    result = several.reduce(op, value, axis=0)
    wanted = np.asarray(1024 * count if op == "SUM" else 1, bfloat16)
    assert (result, result.dtype) == (wanted, bfloat16)


def test_a_replica_may_have_no_slices(several, count):
    def replica():
        rows = list(range(number()))
        slices = IndexedSlices(np.ones((len(rows), 2)), rows)
        return distribute.get_replica_context().all_reduce("SUM", slices)

    for total in local(several, several.run(replica)):
        assert total.indices.tolist() == [j for i in range(count) for j in range(i)]
        assert total.indices.dtype.kind == "i"


def test_the_mean_of_integer_packs_is_refused(several, comm, count):
    packs = [comm.packs([np.zeros(2, np.int32)]) for _ in several.extended.replica_ids]

    def replica():
        mine = packs[number() % len(packs)].next()
        mine[0][...] = number()
        return distribute.get_replica_context().all_reduce("MEAN", mine)

    with pytest.raises(TypeError, match="no room"):
        several.run(replica)
    assert several.reduce("MEAN", 1.0, axis=None) == 1


def test_any_byte_order_adds_up(several, count):
    value = several.experimental_distribute_values_from_function(
        lambda context: np.arange(3, dtype=">f4")
    )
    assert several.reduce("SUM", value, None).tolist() == [0, count, 2 * count]
