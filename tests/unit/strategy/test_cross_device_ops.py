import numpy as np
import pytest

import collectives
import strategy as distribute
from strategy import PerReplica
from strategy.collective_all_reduce import CollectiveAllReduce
from strategy.packs import concat_and_split, group_by_size, split_again

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


OPS = [
    distribute.ReductionToOneDevice,
    lambda: distribute.HierarchicalCopyAllReduce(num_packs=0),
    distribute.HierarchicalCopyAllReduce,
    lambda: distribute.HierarchicalCopyAllReduce(num_packs=3),
    CollectiveAllReduce,
]


@pytest.mark.parametrize("ops", OPS)
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
@pytest.mark.parametrize("count", range(1, 6))
def test_every_way_adds_all_replicas(ops, op, count):
    shapes = [((), np.float32), ((3,), np.float64), ((2, 2), np.float32), ((0,), "i4")]
    lists = [
        [np.full(shape, 10**r + at).astype(dtype) for r in range(count)]
        for at, (shape, dtype) in enumerate(shapes)
    ]
    pairs = [(PerReplica(parts), PerReplica(parts)) for parts in lists]
    made = ops()
    for (value, _), result in zip(pairs, made.batch_reduce(op, pairs), strict=True):
        expected = np.sum(value.values, axis=0) / (count if op == "MEAN" else 1)
        parts = result.values if count > 1 else [result]
        for part in parts:
            np.testing.assert_allclose(part, expected, rtol=1e-6)
        assert len({id(part) for part in parts}) == count
    assert made.last.tensors == len(lists)
    assert made.last.replicas == count


def test_results_go_where_they_are_wanted():
    ops, value = distribute.ReductionToOneDevice(), PerReplica([np.ones(2)] * 3)
    assert isinstance(ops.reduce("SUM", value, "CPU:0"), np.ndarray)
    assert isinstance(ops.reduce("SUM", value, np.ones(1)), np.ndarray)
    assert len(ops.reduce("SUM", value, PerReplica([0, 0])).values) == 2
    assert len(ops.broadcast(np.ones(2), value).values) == 3


def test_an_accumulation_of_ones_own_is_divided_by_the_count():
    ops = distribute.ReductionToOneDevice(accumulation_fn=lambda parts: max(parts))
    value = PerReplica([np.float32(1), np.float32(2)])
    assert ops.reduce("SUM", value, "CPU:0") == 2
    assert ops.reduce("MEAN", value, "CPU:0") == 1


def test_ops_of_ones_own_go_into_a_strategy():
    class Loudest(distribute.CrossDeviceOps):
        def batch_reduce_implementation(self, op, pairs, options):
            results = [max(value.values) for value, _ in pairs]
            return [
                self.broadcast(result, to)
                for result, (_, to) in zip(results, pairs, strict=True)
            ]

    strategy = distribute.MirroredStrategy(["CPU:0", "CPU:1"], Loudest())

    def replica():
        context = distribute.get_replica_context()
        return context.all_reduce("SUM", np.float32(context.replica_id_in_sync_group))

    assert [float(part) for part in strategy.run(replica).values] == [1, 1]


def test_nccl_is_refused_between_replicas_in_host_memory():
    two = distribute.MirroredStrategy(["CPU:0", "CPU:1"], distribute.NcclAllReduce())
    value = PerReplica([np.ones(1), np.ones(1)])
    with pytest.raises(collectives.UnsupportedError, match=r"GPU.*HierarchicalCopy"):
        two.extended.reduce_to("SUM", value, value)
    assert two.reduce("SUM", value, axis=None) == 2
    for count in (-1, -5):
        with pytest.raises(ValueError, match="num_packs"):
            distribute.NcclAllReduce(num_packs=count)


@pytest.mark.parametrize(
    "make",
    [
        lambda: distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        lambda: distribute.CentralStorageStrategy(["CPU:0", "CPU:1"]),
    ],
)
def test_nccl_is_refused_in_a_replica_too(make):
    strategy = make()
    options = distribute.CommunicationOptions(implementation="NCCL")

    def replica(method):
        context = distribute.get_replica_context()
        return getattr(context, method)("SUM", np.ones(1), options)

    for method in ("all_reduce", "start_all_reduce"):
        with pytest.raises(collectives.UnsupportedError, match="no GPU"):
            strategy.run(replica, args=(method,))


def test_hints_without_use_are_told():
    two = distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    value = PerReplica([np.ones(4), np.ones(4)])
    assert two.extended.last_communication is None
    options = distribute.CommunicationOptions(bytes_per_pack=8, implementation="RING")
    two.extended.reduce_to("SUM", value, value, options)
    used = two.extended.last_communication
    assert used.algorithms == ("local",)
    assert used.ignored == "bytes_per_pack, implementation: nothing leaves this process"
    two.extended.reduce_to("SUM", value, value)
    assert two.extended.last_communication.ignored == ""


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_slices_are_joined_and_never_merged(count, op):
    strategy = distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])
    given = PerReplica(
        [
            distribute.IndexedSlices(
                np.full((r + 1, 2), r + 1.0), [1] * (r + 1), [4, 2]
            )
            for r in range(count)
        ]
    )
    result = strategy.extended.reduce_to(op, given, "CPU:0")
    rows = sum(range(1, count + 1))
    assert result.indices.tolist() == [1] * rows
    assert result.dense_shape.tolist() == [4, 2]
    total = sum((r + 1) ** 2 for r in range(count)) * 2
    assert result.values.sum() == pytest.approx(total / (count if op == "MEAN" else 1))


def test_slices_need_a_row_for_each_index():
    with pytest.raises(ValueError, match="one row of values for each"):
        distribute.IndexedSlices(np.ones((2, 3)), [0])


@pytest.mark.parametrize("counts", [[2, 3, 2], [1, 2], [5], []])
@pytest.mark.parametrize("num_packs", [1, 2, 3, 7])
def test_packs_come_apart_again(counts, num_packs):
    arrays = [np.arange(count) + 10.0 * at for at, count in enumerate(counts)]
    packs = concat_and_split(arrays, num_packs)
    if arrays:
        assert len(packs) == num_packs
        assert {pack.size for pack in packs[:-1]} <= {sum(counts) // num_packs}
        again = split_again(packs, arrays)
        assert [a.tolist() for a in again] == [a.tolist() for a in arrays]
