"""Pipelines in one process."""

import gc
import threading
import time

import numpy as np
import pytest

from strategy.data import (
    INFINITE_CARDINALITY,
    SHARD_HINT,
    UNKNOWN_CARDINALITY,
    AutoShardPolicy,
    Dataset,
    Options,
    TensorSpec,
)
from strategy.errors import StructureError


def steps(dataset):
    return [np.asarray(step).tolist() for step in dataset]


def test_rows_and_batches():
    rows = Dataset.from_tensor_slices(np.arange(5))
    assert steps(rows) == [0, 1, 2, 3, 4]
    assert steps(rows.batch(2)) == [[0, 1], [2, 3], [4]]
    assert steps(rows.batch(2, drop_remainder=True)) == [[0, 1], [2, 3]]
    assert steps(rows.batch(9, drop_remainder=True)) == []
    assert steps(rows.batch(3).repeat(2)) == [[0, 1, 2], [3, 4]] * 2
    assert steps(rows.repeat(2).batch(3)) == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4]]
    assert steps(rows.batch(2).batch(2).take(1)) == [[[0, 1], [2, 3]]]


def test_what_moves_elements():
    numbers = Dataset.range(10)
    assert steps(numbers.take(3)) == [0, 1, 2]
    assert steps(numbers.skip(8)) == [8, 9]
    assert steps(numbers.shard(3, 1)) == [1, 4, 7]
    assert steps(numbers.filter(lambda x: x % 4 == 0)) == [0, 4, 8]
    assert steps(numbers.map(lambda x: x * 2).take(2)) == [0, 2]
    assert steps(Dataset.range(2, 9, 3)) == [2, 5, 8]
    (batch,) = numbers.batch(10)
    assert batch.dtype == np.int64


@pytest.mark.parametrize("rows", range(5))
@pytest.mark.parametrize(
    "chain",
    [
        lambda d: d.batch(2).repeat(3),
        lambda d: d.batch(2, True).repeat(3),
        lambda d: d.repeat(0),
        lambda d: d.repeat().take(7 if len(d) else 0),
        lambda d: d.skip(3).prefetch(),
        lambda d: d.shard(2, 1).shuffle(),
        lambda d: d.repeat(2).shard(3, 2).map(lambda x: x),
        lambda d: d.take(3).skip(1),
    ],
)
def test_the_length_is_the_number_of_elements(chain, rows):
    dataset = chain(Dataset.range(rows))
    assert len(dataset) == dataset.cardinality() == len(list(dataset))


def test_lengths_that_nobody_knows():
    endless = Dataset.range(2).batch(2).repeat()
    steps_ = iter(endless)
    assert [next(steps_).tolist() for _ in range(5)] == [[0, 1]] * 5
    assert endless.cardinality() == INFINITE_CARDINALITY
    with pytest.raises(TypeError, match="repeats for ever"):
        len(endless)
    generated = Dataset.from_generator(lambda: range(3))
    assert generated.cardinality() == UNKNOWN_CARDINALITY
    with pytest.raises(TypeError, match="read to its end"):
        len(generated.batch(2))
    assert list(Dataset.range(0).repeat()) == []


def test_nests_keep_rows_together():
    dataset = Dataset.from_tensor_slices({"x": np.arange(6), "y": np.arange(6) * 10})
    for step in dataset.shuffle(seed=1).batch(4):
        assert (step["x"] * 10 == step["y"]).all()
    pairs = Dataset.from_tensor_slices(([1, 2], [[3, 4], [5, 6]]))
    assert [(x, y.tolist()) for x, y in pairs] == [(1, [3, 4]), (2, [5, 6])]
    assert steps(pairs.map(lambda x, y: x * y)) == [[3, 4], [10, 12]]


def test_changing_an_element_leaves_the_arrays_alone():
    array = np.arange(6).reshape(3, 2)
    for step in (*Dataset.from_tensor_slices(array), *Dataset.range(2).batch(2)):
        step += 100
    for step in Dataset.from_tensor_slices(array).batch(2):
        step += 100
    assert array.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("buffer", [None, 1, 2, 7, 20, 99])
def test_shuffle_is_fixed_by_seed_and_epoch(buffer):
    def epochs(seed, **more):
        dataset = Dataset.range(20).shuffle(buffer, seed, **more).batch(20)
        return [steps(dataset)[0] for _ in range(3)]

    first = epochs(1)
    assert first == epochs(1)
    assert all(sorted(epoch) == list(range(20)) for epoch in first)
    if buffer == 1:
        assert first == [list(range(20))] * 3
    else:
        assert first != epochs(2)
        assert first[0] != first[1] != first[2]
    again = epochs(1, reshuffle_each_iteration=False)
    assert again[0] == again[1] == first[0]


def test_a_buffer_bounds_how_far_an_element_comes_forward():
    order = steps(Dataset.range(100).shuffle(5, seed=3))
    assert all(number < place + 5 for place, number in enumerate(order))


def test_repeat_draws_the_same_epochs_as_iterating_again():
    rows = Dataset.range(9).shuffle(seed=3)
    again = rows.batch(9)
    assert steps(rows.batch(9).repeat(3)) == steps(again) + steps(again) + steps(again)


def test_generators_and_iterables():
    def make():
        yield {"x": 1.5, "y": [1, 2]}
        yield {"x": 2.5, "y": [3, 4]}

    (batch,) = Dataset.from_generator(make).batch(2)
    assert batch["x"].tolist() == [1.5, 2.5]
    batches = Dataset.from_iterable([[1, 2], [3]])
    assert steps(batches) == [[1, 2], [3]]
    assert len(batches) == 2
    with pytest.raises(StructureError, match=r"\(2,\), \(3,\)"):
        list(Dataset.from_iterable([np.ones(2), np.ones(3)]).batch(2))


def test_wrong_use():
    rows = Dataset.range(5)
    for wrong, text in [
        (lambda: rows.batch(0), "batch_size is 0"),
        (lambda: rows.shuffle(0), "buffer_size is 0"),
        (lambda: rows.prefetch(0), "buffer_size is 0"),
        (lambda: rows.take(-1), "count is -1"),
        (lambda: rows.shard(2, 2), "shard 2 of 2; wanted an index from 0 to 1"),
        (lambda: list(rows.shard(SHARD_HINT, SHARD_HINT)), "AutoShardPolicy.HINT"),
        (lambda: Dataset.from_tensor_slices((range(5), range(4))), "one number of"),
        (lambda: Dataset.from_tensor_slices(5), "one number of rows"),
        (lambda: Dataset.from_text([]), "paths is empty"),
    ]:
        with pytest.raises(ValueError, match=text):
            wrong()


def test_options():
    options = Options()
    with pytest.raises(TypeError, match="auto_shard_policy is 2"):
        options.experimental_distribute.auto_shard_policy = 2
    with pytest.raises(AttributeError, match="auto_shard_policy"):
        options.experimental_distribute.autoshard = AutoShardPolicy.OFF
    with pytest.raises(TypeError, match="wanted an Options"):
        Dataset.range(1).with_options(AutoShardPolicy.OFF)
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.FILE
    dataset = Dataset.range(1).with_options(options).batch(1)
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    kept = dataset.options().experimental_distribute.auto_shard_policy
    assert kept is AutoShardPolicy.FILE


def test_element_spec():
    rows = Dataset.from_tensor_slices(np.zeros((5, 3), np.float32))
    assert rows.element_spec == TensorSpec((3,), np.dtype(np.float32))
    assert rows.batch(2).element_spec.shape == (None, 3)
    assert rows.batch(2, drop_remainder=True).element_spec.shape == (2, 3)
    assert Dataset.range(3).element_spec.shape == ()
    with pytest.raises(ValueError, match="is empty"):
        _ = Dataset.range(0).element_spec


def test_text(tmp_path):
    for name, text in {"a": "1\r\n2\n", "b": "", "c": "3"}.items():
        (tmp_path / name).write_bytes(text.encode())
    lines = Dataset.from_text([tmp_path / name for name in "abc"])
    assert steps(lines) == ["1", "2", "3"]
    assert steps(lines.map(int).batch(2)) == [[1, 2], [3]]


def test_csv(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('x,y,name\n1,2,"a, b"\n3,4.5,c\n')
    columns = {"y": np.float32, "name": str}
    rows = list(Dataset.from_csv(path, columns))
    assert rows == [{"y": 2, "name": "a, b"}, {"y": 4.5, "name": "c"}]
    assert rows[0]["y"].dtype == np.float32
    with pytest.raises(ValueError, match=r"table.csv line 2: name is 'a, b'.*float64"):
        list(Dataset.from_csv(path))
    with pytest.raises(ValueError, match=r"table.csv has no column z.*'x,y,name'"):
        list(Dataset.from_csv(path, {"z": int}))
    for row in ("1", "1,2,3"):
        path.write_text(f"x,y\n{row}\n")
        with pytest.raises(ValueError, match="line 2 does not fit the header"):
            list(Dataset.from_csv(path))


@pytest.mark.parametrize("seed", [None, 1])
def test_npy(tmp_path, seed):
    arrays = [
        np.arange(6.0).reshape(3, 2),
        np.zeros((0, 2)),
        np.arange(4.0)[:, None] + [[9, 9]],
    ]
    paths = [tmp_path / f"{place}.npy" for place in range(3)]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    dataset = Dataset.from_npy(paths)
    whole = np.concatenate(arrays).tolist()
    assert len(dataset) == 7
    assert steps(dataset) == whole
    if seed is not None:
        dataset = dataset.shuffle(seed=seed)
    batched = [row for batch in steps(dataset.batch(3)) for row in batch]
    assert sorted(batched) == sorted(whole)
    assert (batched == whole) == (seed is None)
    np.save(paths[1], np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"1.npy has an array of shape \(2, 3\)"):
        list(dataset)


def test_npz(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(2), y=np.ones((2, 3)))
    np.savez(tmp_path / "b.npz", x=np.arange(2, 3), y=np.ones((1, 3)))
    dataset = Dataset.from_npz([tmp_path / "a.npz", tmp_path / "b.npz"])
    (batch,) = dataset.batch(5)
    assert batch["x"].tolist() == [0, 1, 2]
    assert batch["y"].shape == (3, 3)
    np.savez(tmp_path / "b.npz", x=np.arange(2), y=np.ones(3))
    with pytest.raises(ValueError, match=r"b.npz has arrays of"):
        list(dataset)


def threads():
    return [t for t in threading.enumerate() if t.name == "ringfold-prefetch"]


def assert_no_threads():
    gc.collect()
    for _ in range(500):
        if not threads():
            return
        time.sleep(0.01)
    raise AssertionError(f"still there: {threads()}")


def test_prefetch_gives_the_same_and_leaves_no_thread():
    assert steps(Dataset.range(9).prefetch(2).map(lambda x: x + 1)) == [*range(1, 10)]
    assert steps(Dataset.range(4).prefetch().batch(3)) == [[0, 1, 2], [3]]
    assert_no_threads()


def test_prefetch_is_ahead_and_not_further_than_asked():
    made = []

    def make():
        for number in range(100):
            made.append(number)
            yield number

    elements = iter(Dataset.from_generator(make).prefetch(3))
    assert next(elements) == 0
    for _ in range(500):
        if len(made) == 4:
            break
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2, 3]
    del elements
    assert_no_threads()


def test_an_abandoned_prefetch_closes_what_it_read():
    closed = threading.Event()

    def make():
        try:
            yield from range(1000)
        finally:
            closed.set()

    for element in Dataset.from_generator(make).prefetch(2).batch(2).prefetch(2):
        assert element.tolist() == [0, 1]
        break
    del element
    assert closed.wait(5)
    assert_no_threads()


def test_a_prefetch_that_nobody_reads_starts_no_thread():
    iter(Dataset.range(3).prefetch(2))
    iter(Dataset.range(3).prefetch(2).repeat().batch(2))
    assert not threads()


def test_an_exception_comes_out_of_prefetch_at_its_element():
    class Odd(Exception):
        pass

    error = Odd("three")

    def check(number):
        if number == 3:
            raise error
        return number

    seen = []
    with pytest.raises(Odd) as caught:
        for number in Dataset.range(9).map(check).prefetch(5):
            seen.append(int(number))
    assert caught.value is error
    assert seen == [0, 1, 2]
    assert_no_threads()
