import numpy as np
import pytest

import collectives
import strategy as distribute
from strategy import Mirrored, PerReplica, StructureError, Variable
from strategy.values import ValueContext


def test_properties(strategy, comm, own_device):
    assert strategy.num_replicas_in_sync == comm.size
    extended = strategy.extended
    assert extended.should_checkpoint == (comm.rank == 0)
    assert extended.worker_devices == (
        f"/job:worker/replica:0/task:{comm.rank}/device:{own_device}",
    )
    assert strategy.run(
        lambda: distribute.get_replica_context().replica_id_in_sync_group
    ) == (comm.rank)


def test_every_value_counts_plain_ones_too(strategy, comm, rank):
    total = comm.size * (comm.size + 1) / 2
    for value in (rank + 1.0, np.float32(rank + 1), PerReplica([rank + 1.0])):
        assert strategy.reduce("SUM", value, axis=None) == total
        assert strategy.reduce("MEAN", value, axis=None) == total / comm.size
    assert strategy.reduce("SUM", 3.0, axis=None) == 3 * comm.size


def test_integers(strategy, comm, rank):
    total = strategy.reduce("SUM", np.int32(rank + 1), axis=None)
    mean = strategy.reduce("MEAN", np.int32(rank + 1), axis=None)
    assert (total.dtype, mean.dtype) == (np.int32, np.float64)
    assert mean == (comm.size + 1) / 2
    small = strategy.reduce("MEAN", np.int8(rank + 1), axis=None)
    assert (small, small.dtype) == ((comm.size + 1) / 2, np.float32)


def test_a_nest_is_reduced_leaf_by_leaf(strategy, comm, rank):
    total = sum(range(comm.size))
    nest = {"a": [np.float32(rank), np.float64(2 * rank)], "b": np.full(3, rank)}
    if rank == 0:
        nest = dict(reversed(nest.items()))  # the ranks' dicts may differ in history
    result = strategy.reduce("SUM", nest, axis=None)
    assert result["a"] == [total, 2 * total]
    assert result["a"][0].dtype == np.float32
    assert result["b"].tolist() == [total] * 3


TWO, THREE = pytest.mark.ranks(2), pytest.mark.ranks(3)


@pytest.mark.parametrize(
    ("values", "op", "axis", "expected"),
    [
        pytest.param(
            [[0, 1, 2, 3], [4, 5, 6, 7]], "SUM", None, [4, 6, 8, 10], marks=TWO
        ),
        pytest.param([[0, 1, 2, 3], [4, 5, 6, 7]], "SUM", 0, 28, marks=TWO),
        pytest.param([[0, 1, 2, 3], [4, 5, 6, 7]], "MEAN", 0, 3.5, marks=TWO),
        pytest.param([[0, 1, 2, 3], [4, 5]], "SUM", 0, 15, marks=TWO),
        pytest.param([[0, 1, 2, 3], [4, 5]], "MEAN", 0, 2.5, marks=TWO),
        pytest.param([[1, 2], []], "MEAN", 0, 1.5, marks=TWO),
        pytest.param([[], []], "MEAN", 0, np.nan, marks=TWO),
        pytest.param([[1, 2], [3], []], "MEAN", 0, 2.0, marks=THREE),
        pytest.param(
            [[[1, 2], [3, 4]], [[10, 20]]], "MEAN", 0, [14 / 3, 26 / 3], marks=TWO
        ),
        pytest.param(
            [[[1, 2], [3, 4]], [[5, 6], [7, 9]]], "MEAN", -1, [3.5, 5.75], marks=TWO
        ),
        pytest.param(
            [[[1, 2], [3, 4]], [[5, 6], [7, 9]]], "MEAN", (0, 1), 4.625, marks=TWO
        ),
    ],
)
def test_worked_reductions(strategy, mine, values, op, axis, expected):
    for value in (mine(values), PerReplica([mine(values)])):
        result = strategy.reduce(op, value, axis)
        np.testing.assert_allclose(result, np.float32(expected), rtol=1e-6)
        assert result.dtype == np.float32


@pytest.mark.ranks(2, 3)
def test_shapes_that_differ_are_refused_everywhere_and_break_nothing(strategy, rank):
    with pytest.raises(collectives.MismatchError):
        strategy.reduce("SUM", np.zeros(2 + rank), axis=None)
    assert strategy.reduce("MEAN", 1.0, axis=None) == 1


def test_a_mirrored_value_is_its_own_mean_and_has_no_sum(strategy):
    with strategy.scope():
        variable = Variable(5.0)
    for value in (variable, Mirrored([np.float64(5)])):
        assert strategy.reduce("MEAN", value, axis=None) == 5
        with pytest.raises(StructureError, match="SUM of a mirrored value"):
            strategy.reduce("SUM", value, axis=None)


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    ("values", "axis", "expected"),
    [
        ([[0], [1, 1]], 0, [0, 1, 1]),
        ([[[1, 2], [5, 6]], [[3, 4]]], 0, [[1, 2], [5, 6], [3, 4]]),
        ([[[1], [2]], [[3, 4], [5, 6]]], 1, [[1, 3, 4], [2, 5, 6]]),
    ],
)
def test_gather_joins_uneven_values(strategy, mine, values, axis, expected):
    assert strategy.gather(mine(values), axis).tolist() == expected

    def replica():
        return distribute.get_replica_context().all_gather([mine(values)], axis)

    assert strategy.run(replica)[0].tolist() == expected


def test_all_reduce_keeps_structure_and_dtypes(strategy, comm, rank):
    def replica():
        context = distribute.get_replica_context()
        value = {"b": np.full(3, rank, np.float32), "a": (np.int32(rank), rank * 2.0)}
        return context.all_reduce("sum", value)

    result = strategy.run(replica)
    total = sum(range(comm.size))
    assert result["a"] == (total, 2 * total)
    assert result["a"][0].dtype == np.int32
    assert result["b"].tolist() == [total] * 3


def test_merge_call_reduces(strategy, comm, rank):
    def merge(merging, value):
        return merging.reduce("SUM", value, axis=None)

    def replica():
        return distribute.get_replica_context().merge_call(merge, (rank + 1.0,))

    assert strategy.run(replica) == comm.size * (comm.size + 1) / 2


def test_values_from_function_know_their_replica(strategy, comm):
    seen = strategy.experimental_distribute_values_from_function(
        lambda context: context
    )
    assert seen.values == (ValueContext(comm.rank, comm.size),)
    result = strategy.run(lambda value: value, args=(seen,))
    assert result == ValueContext(comm.rank, comm.size)


def test_packs_are_told_and_change_no_result(strategy, comm, rank):
    arrays = [np.full(n, rank + i, np.float32) for i, n in enumerate((2, 1, 3))]

    def replica(options=None):
        return distribute.get_replica_context().all_reduce("MEAN", arrays, options)

    whole = strategy.run(replica)
    assert strategy.extended.last_communication.pack_bytes == (24,)
    options = distribute.CommunicationOptions(bytes_per_pack=4)
    packed = strategy.run(replica, args=(options,))
    used = strategy.extended.last_communication
    assert used.pack_bytes == (
        12,
        12,
    )  # 3 elements exceed 4 bytes; 1 does not, so 1 + 2
    assert (used.tensors, used.ranks) == (3, comm.size)
    mean = (comm.size - 1) / 2
    for i, (one, other) in enumerate(zip(whole, packed, strict=True)):
        assert one.tolist() == other.tolist() == [mean + i] * arrays[i].size


def test_ring_is_used_where_asked_for(comm, rank):
    options = distribute.CommunicationOptions(implementation="RING")
    ringed = distribute.MultiWorkerMirroredStrategy(communication_options=options)
    x = np.arange(10.0) * (rank + 1)
    result = ringed.reduce("SUM", x, axis=None)
    np.testing.assert_allclose(result, np.arange(10.0) * sum(range(1, comm.size + 1)))
    used = ringed.extended.last_communication
    assert used.implementation is distribute.CommunicationImplementation.RING


def test_nccl_is_refused_on_every_rank(comm):
    options = distribute.CommunicationOptions(implementation="NCCL")
    wanted = f"rank.*{comm.size - 1} have no GPU"
    with pytest.raises(collectives.UnsupportedError, match=wanted):
        distribute.MultiWorkerMirroredStrategy(None, options, ["CPU:0"])


@pytest.mark.ranks(2, 3)
def test_options_that_differ_between_ranks_are_refused_everywhere(rank):
    options = distribute.CommunicationOptions(bytes_per_pack=rank)
    with pytest.raises(distribute.ClusterError, match=r"rank 0 has .* rank 1 has"):
        distribute.MultiWorkerMirroredStrategy(communication_options=options)
