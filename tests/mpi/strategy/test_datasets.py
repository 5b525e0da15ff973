from itertools import chain

import numpy as np
import pytest

import strategy as distribute
from strategy import InputContext, InputError, PerReplica, data
from strategy.data import AutoShardPolicy, Dataset

TWO, THREE = pytest.mark.ranks(2), pytest.mark.ranks(3)


def steps(distributed):
    result = []
    for step in distributed:
        assert isinstance(step, PerReplica)
        (array,) = step.values
        result.append(array.tolist())
    return result


@pytest.mark.parametrize(
    ("rows", "batch", "expected"),
    [
        pytest.param(8, 4, ([[0, 1], [4, 5]], [[2, 3], [6, 7]]), marks=TWO),
        pytest.param(9, 4, ([[0, 1], [4, 5], [8]], [[2, 3], [6, 7], []]), marks=TWO),
        pytest.param(5, 4, ([[0, 1], [4]], [[2, 3], []]), marks=TWO),
        pytest.param(9, 5, ([[0, 1, 2], [5, 6]], [[3, 4], [7, 8]]), marks=TWO),
        pytest.param(3, 1, ([[0], [1], [2]], [[], [], []]), marks=TWO),
        pytest.param(
            11,
            7,
            ([[0, 1, 2], [7, 8]], [[3, 4, 5], [9, 10]], [[6], []]),
            marks=THREE,
        ),
        pytest.param(8, 6, ([[0, 1], [6]], [[2, 3], [7]], [[4, 5], []]), marks=THREE),
    ],
)
def test_worked_shares(strategy, rank, rows, batch, expected):
    dataset = Dataset.from_tensor_slices(np.arange(rows)).batch(batch)
    shared = strategy.experimental_distribute_dataset(dataset)
    assert steps(shared) == expected[rank]
    assert steps(shared) == expected[rank]
    assert len(shared) == len(expected[rank])


@pytest.mark.ranks(2, 3, 4, 5)
def test_together_the_shares_are_the_shuffled_batches(strategy, comm):
    dataset = Dataset.from_tensor_slices(np.arange(50)).shuffle(seed=7).batch(16)
    shared = strategy.experimental_distribute_dataset(dataset)
    if comm.rank == 0:
        list(dataset)  # looking into it on one rank must not move the others' order
    whole = Dataset.from_tensor_slices(np.arange(50)).shuffle(seed=7).batch(16)
    for _ in range(2):
        joined = [
            [row for part in parts for row in part]
            for parts in zip(*comm.all_gather_object(steps(shared)), strict=True)
        ]
        assert joined == [batch.tolist() for batch in whole]


@pytest.mark.ranks(2, 3)
def test_empty_steps_keep_structure_dtype_and_row_shape(strategy, comm):
    arrays = {"x": np.zeros((1, 2, 3), np.float32), "y": np.zeros(1, np.int64)}
    dataset = Dataset.from_tensor_slices(arrays).batch(4)
    (step,) = strategy.experimental_distribute_dataset(dataset)
    x, y = step["x"].values[0], step["y"].values[0]
    rows = 1 if comm.rank == 0 else 0
    assert (x.shape, x.dtype) == ((rows, 2, 3), np.float32)
    assert (y.shape, y.dtype) == ((rows,), np.int64)
    assert strategy.run(lambda step: step["x"].shape, args=(step,)) == x.shape


@pytest.mark.ranks(2)
def test_from_function_goes_on_until_all_are_done(strategy, rank):
    contexts = []

    def make(context):
        contexts.append(context)
        rows = np.arange(2 + context.input_pipeline_id)
        return Dataset.from_tensor_slices(rows).batch(1)

    shared = strategy.distribute_datasets_from_function(make)
    assert contexts == [InputContext(2, rank, 2)]
    assert steps(shared) == ([[0], [1], []], [[0], [1], [2]])[rank]
    with pytest.raises(TypeError, match="not known"):
        len(shared)


@pytest.mark.ranks(2)
def test_from_function_of_two_local_replicas(rank):
    strategy = distribute.MultiWorkerMirroredStrategy(devices=["CPU:0", "CPU:1"])

    def make(context):
        assert (context.num_input_pipelines, context.num_replicas_in_sync) == (2, 4)
        return Dataset.range(1 + 2 * context.input_pipeline_id).batch(1)

    shared = strategy.distribute_datasets_from_function(make)
    found = [[part.tolist() for part in step.values] for step in shared]
    assert found == ([[[0], []], [[], []]], [[[0], [1]], [[2], []]])[rank]


@pytest.mark.ranks(2, 3)
def test_a_rank_that_never_had_a_batch_learns_what_one_is(strategy, comm):
    last = comm.size - 1

    def make(context):
        mine = context.input_pipeline_id == last
        return [(np.ones((2, 3), np.float32), np.int8(5))] if mine else []

    (step,) = strategy.distribute_datasets_from_function(make)
    array, number = (value.values[0] for value in step)
    assert (array.shape, array.dtype) == ((2 * (comm.rank == last), 3), np.float32)
    assert (number, number.dtype) == (5 * (comm.rank == last), np.int8)


@pytest.mark.ranks(2, 3)
def test_no_batches_at_all(strategy):
    assert steps(strategy.experimental_distribute_dataset([])) == []


@pytest.mark.ranks(2, 3)
def test_rows_that_are_not_batches_are_refused(strategy):
    rows = Dataset.from_tensor_slices(np.arange(3))
    with pytest.raises(ValueError, match=r"call batch\(\)"):
        steps(strategy.experimental_distribute_dataset(rows))


@pytest.mark.parametrize("local", [1, 2, 3])
@pytest.mark.parametrize("policy", [AutoShardPolicy.DATA, AutoShardPolicy.FILE])
def test_every_element_once_per_epoch(comm, tmp_path_factory, policy, local):
    devices = [f"CPU:{index}" for index in range(local)]
    strategy = distribute.MultiWorkerMirroredStrategy(devices=devices)
    folder = comm.broadcast_object(str(tmp_path_factory.mktemp("lines")))
    paths = [f"{folder}/{file}.txt" for file in range(7)]
    if comm.rank == 0:
        for file, path in enumerate(paths):
            with open(path, "w") as lines:
                lines.writelines(f"{100 * file + line}\n" for line in range(file))
    comm.barrier()
    options = data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    dataset = Dataset.from_text(paths).map(int).shuffle().batch(4)
    shared = strategy.experimental_distribute_dataset(dataset.with_options(options))
    everything = [100 * file + line for file in range(7) for line in range(file)]
    orders = []
    for _ in range(2):
        mine = [strategy.experimental_local_results(step) for step in shared]
        assert {len(step) for step in mine} == {local}
        lengths = comm.all_gather_object(len(mine))
        assert len(set(lengths)) == 1
        rows = [int(x) for step in mine for part in step for x in part]
        seen = [*chain(*comm.all_gather_object(rows))]
        assert sorted(seen) == everything
        orders.append(seen)
    assert orders[0] != orders[1]


@pytest.mark.ranks(2, 3)
def test_datasets_that_differ_are_refused_on_all_ranks(strategy, comm):
    dataset = Dataset.range(4 + comm.rank).batch(2)
    with pytest.raises(InputError, match=r"rank 0 has range\(0, 4\) .* rank 1 has"):
        strategy.experimental_distribute_dataset(dataset)
    options = data.Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    shared = strategy.experimental_distribute_dataset(dataset.with_options(options))
    together = comm.all_gather_object([*chain(*steps(shared))])
    assert together == [list(range(4 + rank)) for rank in range(comm.size)]


@pytest.mark.ranks(2, 3)
def test_a_rank_whose_input_fails_stops_all(strategy, comm):
    def read(number):
        if comm.rank == 1 and number == 4:
            raise KeyError("no such picture")
        return number

    dataset = Dataset.range(9).map(read).prefetch(1).batch(2)
    shared = strategy.experimental_distribute_dataset(dataset)
    seen = []
    expected = KeyError if comm.rank == 1 else InputError
    with pytest.raises(expected, match="no such picture"):
        for step in shared:
            seen.append(step)
    assert len(seen) == 2
    assert comm.all_reduce(1) == comm.size


@pytest.mark.ranks(2, 3)
def test_a_file_that_one_rank_lacks_is_told_on_all(strategy, comm, tmp_path):
    if comm.rank != 1:
        np.save(tmp_path / "rows.npy", np.arange(8))
        (tmp_path / "rows.txt").write_text("1\n2\n")
    path = tmp_path / "rows.npy"
    options = data.Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    dataset = Dataset.from_npy(path).batch(4).with_options(options)
    expected = FileNotFoundError if comm.rank == 1 else InputError
    with pytest.raises(expected, match="rows"):
        strategy.experimental_distribute_dataset(dataset)
    lines = Dataset.from_text(tmp_path / "rows.txt").batch(4).with_options(options)
    shared = strategy.experimental_distribute_dataset(lines)
    with pytest.raises(expected, match="rows"):
        next(iter(shared))

    def make(context):
        if comm.rank == 1:
            raise FileNotFoundError("rows")
        return dataset

    with pytest.raises(expected, match="rows"):
        strategy.distribute_datasets_from_function(make)
    assert comm.all_reduce(1) == comm.size


@pytest.mark.ranks(2)
def test_a_dataset_without_end_asks_nobody(strategy):
    shared = strategy.experimental_distribute_dataset(
        Dataset.range(3).batch(2).repeat()
    )
    taken = [step for step, _ in zip(shared, range(5), strict=False)]
    assert len(taken) == 5
