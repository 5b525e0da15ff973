"""Checkpoints of several ranks: who writes, what each gets back, what all refuse."""

import os

import numpy as np
import pytest

import collectives
from strategy import (
    Checkpoint,
    CheckpointError,
    CheckpointManager,
    DamagedCheckpointError,
    Variable,
    VariableAggregation,
    VariableSynchronization,
)
from strategy.checkpoint import file


@pytest.fixture
def folder(comm, tmp_path_factory):
    """Return rank 0's folder."""
    return comm.broadcast_object(str(tmp_path_factory.mktemp("checkpoints")))


def on_read(strategy, aggregation, mine, dtype=np.float64):
    """Return an ON_READ variable with this replica's component in it."""
    with strategy.scope():
        variable = Variable(
            np.array(0, dtype),
            synchronization=VariableSynchronization.ON_READ,
            aggregation=aggregation,
        )
    strategy.run(variable.assign, args=(np.array(mine, dtype),))
    return variable


def component(variable):
    return variable.values[0].tolist()


def test_sums_are_saved_whole_and_restored_in_shares(strategy, comm, folder):
    total = sum(range(1, comm.size + 1))
    variable = on_read(strategy, VariableAggregation.SUM, comm.rank + 1)
    checkpoint = Checkpoint(v=variable)
    path = checkpoint.save(f"{folder}/ckpt")
    if comm.rank == 0:
        assert file.read(file.named(path))[0]["v"] == total
    strategy.run(variable.assign, args=(np.array(50.0),))
    checkpoint.restore(path)
    assert component(variable) == total / comm.size
    assert variable.numpy() == pytest.approx(total)


@pytest.mark.parametrize(
    "aggregation", [VariableAggregation.MEAN, VariableAggregation.ONLY_FIRST_REPLICA]
)
def test_means_and_firsts_are_restored_whole(strategy, comm, folder, aggregation):
    variable = on_read(strategy, aggregation, 4.0 * comm.rank + 1)
    mean = np.mean([4.0 * rank + 1 for rank in range(comm.size)])
    saved = mean if aggregation is VariableAggregation.MEAN else 1.0
    checkpoint = Checkpoint(v=variable)
    path = checkpoint.save(f"{folder}/ckpt")
    strategy.run(variable.assign, args=(np.array(50.0),))
    checkpoint.restore(path)
    assert component(variable) == saved


def test_a_file_of_other_numbers_of_replicas(strategy, comm, folder):
    path = file.named(f"{folder}/seven")
    if comm.rank == 0:
        arrays = {"s": np.array(21.0), "w": np.arange(3, dtype=np.float32)}
        file.write(path, arrays, {"save_counter": 7, "replicas": 7})
    with strategy.scope():
        w = Variable(np.zeros(3, np.float32))
    s = on_read(strategy, VariableAggregation.SUM, 1)
    checkpoint = Checkpoint(s=s, w=w)
    checkpoint.restore(path)
    assert w.numpy().tolist() == [0, 1, 2]
    assert component(s) == 21 / comm.size
    assert checkpoint.save(f"{folder}/seven").endswith("seven-8.npz")


def test_the_manager_is_the_same_on_all_ranks(strategy, comm, folder):
    with strategy.scope():
        step = Variable(0)
    checkpoint = Checkpoint(step=step)
    manager = CheckpointManager(checkpoint, folder, max_to_keep=2)
    for number in range(1, 4):
        step.assign(number)
        manager.save()
    kept = comm.all_gather_object(manager.checkpoints)
    assert all(each == kept[0] for each in kept)
    assert len(kept[0]) == 2
    comm.barrier()
    if comm.rank == 0:
        assert len(os.listdir(folder)) == 2
    step.assign(9)
    again = CheckpointManager(checkpoint, folder, max_to_keep=2)
    assert again.restore_or_initialize() == manager.latest_checkpoint
    assert int(step.numpy()) == 3


def text(comm, error, call):
    """Return the text of an error that all ranks must raise alike."""
    with pytest.raises(error) as caught:
        call()
    texts = set(comm.all_gather_object(f"{type(caught.value).__name__} {caught.value}"))
    assert len(texts) == 1
    return texts.pop()


@pytest.mark.ranks(2, 3)
def test_errors_are_the_same_on_all_ranks(strategy, comm, folder):
    with strategy.scope():
        checkpoint = Checkpoint(v=Variable(np.ones(3)))
        other = Checkpoint(v=Variable(np.ones(4)))
    mine = f"{folder}/rank{comm.rank}"
    told = text(comm, CheckpointError, lambda: checkpoint.write(mine))
    assert "ranks save different checkpoints: rank 0" in told
    assert "rank1.npz" in told
    path = checkpoint.save(f"{folder}/ckpt")
    assert "float64[3]; wanted float64[4]" in text(
        comm, CheckpointError, lambda: other.restore(path)
    )
    second = checkpoint.save(f"{folder}/ckpt")
    if comm.rank == 0:
        os.truncate(second, 40)
    told = text(comm, DamagedCheckpointError, lambda: checkpoint.restore(second))
    assert f"{path} is whole" in told
    text(comm, FileNotFoundError, lambda: checkpoint.restore(f"{folder}/none"))
    text(comm, OSError, lambda: checkpoint.save("/proc/nothing/ckpt"))
    assert checkpoint.restore(path) == path


@pytest.mark.ranks(2)
def test_a_save_that_meets_another_call_is_refused(strategy, comm, folder):
    with strategy.scope():
        checkpoint = Checkpoint(v=Variable(1.0))
    with pytest.raises(collectives.MismatchError, match="all_gather_object"):
        if comm.rank == 0:
            checkpoint.save(f"{folder}/ckpt")
        else:
            comm.all_reduce(np.ones(2))
    assert checkpoint.save(f"{folder}/ckpt").endswith("ckpt-1.npz")
