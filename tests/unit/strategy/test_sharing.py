"""Who gets which rows, for any number of workers and replicas, in one process."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategy as distribute
from strategy import InputContext, InputOptions, InputReplicationMode, data
from strategy.data import SHARD_HINT, AutoShardPolicy, Dataset
from strategy.data.sharing import Share, batch_sizes, pieces_of
from strategy.input_pipelines import distribute as share_out
from strategy.input_pipelines import from_function

MANY = [(workers, local) for workers, local in product(range(1, 6), range(1, 4))]


def with_policy(dataset, policy):
    options = data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def shares(workers, local):
    return [Share(workers, worker, workers * local) for worker in range(workers)]


def pieces(dataset, share, iteration=0):
    return [
        np.asarray(piece).tolist() for piece in pieces_of(dataset, share, iteration)
    ]


def text_files(folder, lengths):
    paths = []
    for file, length in enumerate(lengths):
        path = folder / f"{file}.txt"
        path.write_text("".join(f"{100 * file + line}\n" for line in range(length)))
        paths.append(path)
    return paths


@pytest.mark.parametrize(("workers", "local"), MANY)
@pytest.mark.parametrize("form", ["lazy", "arrays", "prefetched", "generated"])
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(0, 40), batch=st.integers(1, 12))
def test_data_gives_every_element_once(form, workers, local, rows, batch):
    make = {
        "lazy": lambda: Dataset.range(rows).shuffle().batch(batch),
        "arrays": lambda: Dataset.range(rows).batch(batch).map(lambda x: x),
        "prefetched": lambda: Dataset.range(rows).batch(batch).prefetch(1),
        "generated": lambda: Dataset.from_iterable(
            [np.arange(s, min(s + batch, rows)) for s in range(0, rows, batch)]
        ),
    }
    dataset = with_policy(make[form](), AutoShardPolicy.DATA)
    seen = [pieces(dataset, share) for share in shares(workers, local)]
    assert sorted(x for all_ in seen for piece in all_ for x in piece) == [*range(rows)]
    steps = {len(mine) for mine in seen}
    assert steps == {-(-rows // batch) * local}  # the same number for all of them


@pytest.mark.parametrize(("workers", "local"), MANY)
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=5, max_size=8),
    batch=st.integers(1, 12),
    drop=st.booleans(),
)
def test_file_gives_every_element_once(
    tmp_path_factory, workers, local, lengths, batch, drop
):
    paths = text_files(tmp_path_factory.mktemp("files"), lengths)
    dataset = Dataset.from_text(paths).map(int).batch(batch, drop)
    all_ = shares(workers, local)
    seen = [x for share in all_ for piece in pieces(dataset, share) for x in piece]
    everything = [100 * f + line for f, n in enumerate(lengths) for line in range(n)]
    assert len(set(seen)) == len(seen)
    if drop:
        assert set(seen) <= set(everything)
    else:
        assert sorted(seen) == everything


@pytest.mark.parametrize(("workers", "local"), MANY)
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(0, 40), batch=st.integers(1, 12))
def test_hint_gives_every_element_once(workers, local, rows, batch):
    dataset = Dataset.range(rows).shuffle().shard(SHARD_HINT, SHARD_HINT).batch(batch)
    dataset = with_policy(dataset, AutoShardPolicy.HINT)
    all_ = shares(workers, local)
    seen = [x for share in all_ for piece in pieces(dataset, share) for x in piece]
    assert sorted(seen) == [*range(rows)]


@given(st.integers(0, 50), st.integers(1, 6), st.integers(1, 4))
def test_every_step_of_all_workers_together_is_one_global_batch(size, workers, local):
    sizes = [batch_sizes(size, share) for share in shares(workers, local)]
    for step in range(workers):
        first = step * local
        together = sum(sum(mine[first : first + local]) for mine in sizes)
        assert together == size
    assert all(sum(mine) == size for mine in sizes)


@pytest.mark.parametrize(
    ("size", "workers", "local", "expected"),
    [
        (9, 2, 2, [[3, 2, 2, 2], [2, 2, 3, 2]]),
        (7, 3, 1, [[3, 2, 2], [2, 2, 3], [2, 3, 2]]),
        (3, 2, 2, [[1, 1, 1, 0], [1, 0, 1, 1]]),
    ],
)
def test_worked_batch_sizes(size, workers, local, expected):
    assert [batch_sizes(size, share) for share in shares(workers, local)] == expected


@pytest.mark.parametrize("batch", [3, 4])
def test_a_piece_of_no_rows_has_the_rows_shape(batch):
    rows = np.zeros((5, 2), np.float32)
    for dataset in (
        Dataset.from_tensor_slices(rows).batch(batch),
        Dataset.from_iterable(list(rows)).batch(batch),
        Dataset.from_iterable([rows[:batch], rows[batch:]]),
    ):
        for policy in (AutoShardPolicy.DATA, AutoShardPolicy.OFF):
            for share in shares(2, 3):
                for piece in pieces_of(with_policy(dataset, policy), share, 0):
                    assert piece.shape[1:] == (2,)
                    assert piece.dtype == np.float32


def test_only_the_rows_of_a_piece_are_made():
    class Counting(np.ndarray):
        asked = 0

        def __getitem__(self, index):
            Counting.asked += np.size(index)
            return super().__getitem__(index)

    rows = np.arange(64).view(Counting)
    dataset = Dataset.from_tensor_slices(rows).shuffle().batch(16)
    for _ in pieces_of(dataset, Share(4, 1, 4), 0):
        pass
    assert Counting.asked == 16


def test_policies(tmp_path):
    files = Dataset.from_text(text_files(tmp_path, [3, 3, 3])).map(int).batch(4)
    first, second = shares(2, 1)
    for policy in (AutoShardPolicy.AUTO, AutoShardPolicy.FILE):
        assert pieces(with_policy(files, policy), first) == [
            [0, 1],
            [2, 200],
            [201, 202],
        ]
        mine = pieces(with_policy(files, policy), second)
        assert mine == [[100, 101], [102]]
    hinted = Dataset.range(10).shard(SHARD_HINT, SHARD_HINT).batch(4)
    hinted = with_policy(hinted, AutoShardPolicy.HINT)
    assert pieces(hinted, second) == [[1, 3], [5, 7], [9]]
    off = with_policy(Dataset.range(6).batch(4), AutoShardPolicy.OFF)
    assert pieces(off, first) == pieces(off, second) == [[0, 1], [2, 3], [4, 5]]


def test_policies_that_cannot_be_followed(tmp_path):
    one = Dataset.from_text(text_files(tmp_path, [4])).batch(4)
    with pytest.raises(ValueError, match=r"1 file\(s\) over 2 workers"):
        share_out(one, InputContext(2, 0, 2))
    with pytest.raises(ValueError, match="reads no files"):
        numbers = with_policy(Dataset.range(4).batch(4), AutoShardPolicy.FILE)
        share_out(numbers, InputContext(1, 0, 2))


@pytest.mark.parametrize(
    "dataset",
    [Dataset.range(4), [np.float32(1)], [(np.ones(2), np.ones(3))]],
)
def test_elements_without_rows_are_refused(dataset):
    shared = share_out(dataset, InputContext(1, 0, 2))
    with pytest.raises(ValueError, match=r"call batch\(\)"):
        next(iter(shared))
    with pytest.raises(IndexError):  # which is what TensorFlow raises
        next(iter(shared))


def values(shared):
    return [[part.tolist() for part in step.values] for step in shared]


def test_replicas_take_turns_and_the_last_get_empty_pieces():
    shared = share_out(Dataset.range(10).batch(4), InputContext(1, 0, 3))
    expected = [[[0, 1], [2, 3], []], [[4, 5], [6, 7], []], [[8], [9], []]]
    assert values(shared) == values(shared) == expected
    assert len(shared) == 3
    assert shared.reduce(0, lambda total, step: total + len(step.values)) == 9
    off = with_policy(Dataset.range(10).batch(4), AutoShardPolicy.OFF)
    shared = share_out(off, InputContext(1, 0, 2))
    assert values(shared)[-1] == [[8, 9], []]
    with pytest.raises(TypeError, match="not known"):
        len(shared)


def test_where_nothing_is_padded_the_rest_is_dropped():
    off = with_policy(Dataset.range(9).batch(4), AutoShardPolicy.OFF)
    shared = share_out(off, InputContext(1, 0, 2), can_pad=False)
    assert values(shared) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    scalars = from_function(lambda _: Dataset.range(5), InputContext(1, 0, 2))
    assert values(scalars) == [[0, 1], [2, 3]]


def test_from_function_gives_whole_elements():
    given_ = []

    def make(context):
        given_.append(context)
        return Dataset.range(5).batch(2)

    shared = from_function(make, InputContext(1, 0, 2))
    assert given_ == [InputContext(1, 0, 2)]
    assert values(shared) == [[[0, 1], [2, 3]], [[4], []]]


PER_REPLICA = InputOptions(False, InputReplicationMode.PER_REPLICA, True)


def test_a_dataset_for_each_replica():
    given_ = []

    def make(context):
        given_.append(context)
        return Dataset.range(10 * context.input_pipeline_id, 100).batch(1).take(2)

    shared = from_function(make, InputContext(1, 0, 2), options=PER_REPLICA)
    assert given_ == [InputContext(2, 0, 2), InputContext(2, 1, 2)]
    assert values(shared) == [[[0], [10]], [[1], [11]]]
    with pytest.raises(NotImplementedError, match="from_function"):
        share_out(Dataset.range(3), InputContext(1, 0, 2), options=PER_REPLICA)


def test_input_options_that_contradict():
    for options, text in [
        (
            InputOptions(experimental_place_dataset_on_device=True),
            "without PER_REPLICA",
        ),
        (PER_REPLICA._replace(experimental_fetch_to_device=True), "fetch_to_device"),
    ]:
        with pytest.raises(ValueError, match=text):
            from_function(lambda _: [], InputContext(), options=options)


def test_an_iteration_that_is_asked_for_by_number():
    shared = share_out(Dataset.range(20).shuffle().batch(20), InputContext(1, 0, 2))
    epochs = [values(shared) for _ in range(3)]
    assert epochs[0] != epochs[2]
    assert values(shared.iteration(2)) == values(shared.iteration(2)) == epochs[2]


def test_the_end_of_an_iterator():
    steps = iter(share_out(Dataset.range(3).batch(2), InputContext(1, 0, 2)))
    optionals = [steps.get_next_as_optional() for _ in range(3)]
    assert [optional.has_value() for optional in optionals] == [True, True, False]
    assert [part.tolist() for part in optionals[1].get_value().values] == [[2], []]
    with pytest.raises(ValueError, match="no value"):
        optionals[2].get_value()
    with pytest.raises(distribute.OutOfRangeError):
        steps.get_next()


def test_specs_of_steps():
    def shape(dataset, context):
        spec = share_out(dataset, context).element_spec
        return [part.shape for part in spec.values]

    rows = Dataset.from_tensor_slices(np.zeros((10, 3)))
    assert shape(rows.batch(4), InputContext(1, 0, 2)) == [(None, 3)] * 2
    assert shape(rows.batch(4, True), InputContext(1, 0, 2)) == [(2, 3)] * 2
    assert shape(rows.batch(5, True), InputContext(1, 0, 2)) == [(None, 3)] * 2
    assert shape(rows.batch(4, True), InputContext(2, 0, 2)) == [(None, 3)]


def test_one_replica_sees_all_and_bare():
    strategy = distribute.MultiWorkerMirroredStrategy()
    dataset = Dataset.range(5).shuffle(seed=0).batch(2)
    expected = [[step.tolist() for step in dataset] for _ in range(2)]
    shared = strategy.experimental_distribute_dataset(dataset)
    assert [[step.tolist() for step in shared] for _ in range(2)] == expected
    assert len(shared) == 3


def test_any_iterable_of_batches_will_do():
    shared = share_out([[0, 1, 2], np.arange(2)], InputContext(1, 0, 2))
    assert values(shared) == values(shared) == [[[0, 1], [2]], [[0], [1]]]


def test_an_iterator_has_one_epoch_and_says_so():
    shared = share_out(iter([np.arange(2), np.arange(4)]), InputContext(1, 0, 2))
    assert values(shared) == [[[0], [1]], [[0, 1], [2, 3]]]
    with pytest.raises(ValueError, match="second time"):
        values(shared)


def test_the_default_strategy_gives_the_dataset_back():
    dataset = Dataset.range(5)
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
    assert str(context) == "tf.distribute.InputContext(input pipeline id 1, total: 2)"
    with pytest.raises(ValueError, match="same number of replicas"):
        share_out(Dataset.range(2), InputContext(2, 0, 3))


def test_a_shard_hint_is_filled_in_for_one_replica_too():
    options = data.Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.HINT
    hinted = Dataset.range(4).shard(SHARD_HINT, SHARD_HINT).batch(2)
    steps = share_out(hinted.with_options(options), InputContext())
    assert [step.tolist() for step in steps] == [[0, 1], [2, 3]]
