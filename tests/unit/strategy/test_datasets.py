import numpy as np
import pytest

import strategy as distribute
from strategy import Dataset, InputContext
from strategy.distributed_dataset import cut, rows_of_piece


def pieces(batch, count):
    return [
        cut(np.array(batch), rows_of_piece(piece, count)).tolist()
        for piece in range(count)
    ]


@pytest.mark.parametrize(
    ("batch", "count", "expected"),
    [
        ([0, 1, 2, 3], 2, [[0, 1], [2, 3]]),
        ([8, 9], 2, [[8], [9]]),
        ([8], 2, [[8], []]),
        ([0, 1, 2, 3, 4], 2, [[0, 1, 2], [3, 4]]),
        ([0, 1, 2, 3], 3, [[0, 1], [2, 3], []]),
        ([0, 1, 2, 3, 4, 5, 6], 3, [[0, 1, 2], [3, 4, 5], [6]]),
        ([7, 8, 9, 10], 3, [[7, 8], [9, 10], []]),
        ([6, 7], 3, [[6], [7], []]),
        ([0], 3, [[0], [], []]),
        ([], 2, [[], []]),
    ],
)
def test_a_batch_is_cut_into_even_pieces_with_short_ones_last(batch, count, expected):
    assert pieces(batch, count) == expected


@pytest.mark.parametrize("step", [np.float32(1), (np.ones(2), np.ones(3))])
def test_only_batches_can_be_cut(step):
    with pytest.raises(ValueError, match=r"call batch\(\)"):
        cut(step, rows_of_piece(0, 2))


def steps(dataset):
    return [step.tolist() for step in dataset]


def test_rows_and_batches():
    rows = Dataset.from_tensor_slices(np.arange(5))
    assert steps(rows) == [0, 1, 2, 3, 4]
    assert steps(rows.batch(2)) == [[0, 1], [2, 3], [4]]
    assert steps(rows.batch(2, drop_remainder=True)) == [[0, 1], [2, 3]]
    assert steps(rows.batch(9, drop_remainder=True)) == []
    assert steps(rows.batch(3).repeat(2)) == [[0, 1, 2], [3, 4]] * 2


@pytest.mark.parametrize("rows", range(5))
@pytest.mark.parametrize("drop", [False, True])
def test_the_length_is_the_number_of_steps(rows, drop):
    dataset = Dataset.from_tensor_slices(np.arange(rows)).batch(2, drop).repeat(3)
    assert len(dataset) == len(list(dataset))


def test_a_dataset_without_end():
    dataset = Dataset.from_tensor_slices(np.arange(2)).batch(2).repeat()
    endless = iter(dataset)
    assert [next(endless).tolist() for _ in range(5)] == [[0, 1]] * 5
    with pytest.raises(TypeError, match="no length"):
        len(dataset)


def test_nests_keep_rows_together():
    dataset = Dataset.from_tensor_slices({"x": np.arange(6), "y": np.arange(6) * 10})
    for step in dataset.shuffle(seed=1).batch(4):
        assert (step["x"] * 10 == step["y"]).all()


def test_shuffle_is_fixed_by_seed_and_epoch():
    def epochs(seed):
        dataset = Dataset.from_tensor_slices(np.arange(20)).shuffle(seed=seed).batch(20)
        return [steps(dataset)[0] for _ in range(3)]

    first = epochs(1)
    assert first == epochs(1) != epochs(2)
    assert all(sorted(epoch) == list(range(20)) for epoch in first)
    assert first[0] != first[1] != first[2]


def test_repeat_draws_the_same_epochs_as_iterating_again():
    rows = Dataset.from_tensor_slices(np.arange(9)).shuffle(seed=3)
    again = rows.batch(9)
    assert steps(rows.batch(9).repeat(3)) == steps(again) + steps(again) + steps(again)


def test_wrong_use():
    rows = Dataset.from_tensor_slices(np.arange(5))
    with pytest.raises(ValueError, match="shuffle after batch"):
        rows.batch(2).shuffle(seed=0)
    with pytest.raises(ValueError, match="batch of 2"):
        rows.batch(2).batch(2)
    with pytest.raises(ValueError, match="batch of 0"):
        rows.batch(0)
    with pytest.raises(ValueError, match="one number of rows"):
        Dataset.from_tensor_slices((np.arange(5), np.arange(4)))


def test_one_replica_sees_all_and_bare():
    strategy = distribute.MultiWorkerMirroredStrategy()
    dataset = Dataset.from_tensor_slices(np.arange(5)).shuffle(seed=0).batch(2)
    expected = [steps(dataset), steps(dataset)]
    shared = strategy.experimental_distribute_dataset(dataset)
    assert [steps(shared), steps(shared)] == expected
    assert len(shared) == 3


def test_any_iterable_of_batches_will_do():
    strategy = distribute.MultiWorkerMirroredStrategy()
    batches = [np.arange(3), np.arange(2)]
    shared = strategy.experimental_distribute_dataset(batches)
    assert steps(shared) == steps(shared) == [[0, 1, 2], [0, 1]]


def test_from_function_of_one():
    strategy = distribute.MultiWorkerMirroredStrategy()
    seen = []

    def make(context):
        seen.append(context)
        return [np.arange(2)]

    made = strategy.distribute_datasets_from_function(make)
    assert (steps(made), seen) == ([[0, 1]], [InputContext(1, 0, 1)])


def test_the_default_strategy_gives_the_dataset_back():
    dataset = Dataset.from_tensor_slices(np.arange(5))
    assert distribute.get_strategy().experimental_distribute_dataset(dataset) is dataset


def test_no_next_step_inside_run():
    strategy = distribute.MultiWorkerMirroredStrategy()
    shared = strategy.experimental_distribute_dataset([np.arange(2)])
    with pytest.raises(ValueError, match="inside run"):
        strategy.run(lambda: next(iter(shared)))


def test_input_context():
    context = InputContext(2, 1, 4)
    assert context.get_per_replica_batch_size(8) == 2
    with pytest.raises(ValueError, match="global_batch_size is 6"):
        context.get_per_replica_batch_size(6)
    assert str(context) == "InputContext(input pipeline id 1, total: 2)"
