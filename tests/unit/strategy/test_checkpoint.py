"""Checkpoints of one process: names, files, damage, and a process that is killed."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import strategy as distribute
from strategy import (
    Checkpoint,
    CheckpointError,
    CheckpointManager,
    DamagedCheckpointError,
    Variable,
)
from strategy.checkpoint import file


def variables():
    return {
        "w": Variable(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "layers": [{"b": Variable(np.int64(4))}, {"b": Variable([True, False])}],
    }


def test_what_is_saved_is_restored(tmp_path):
    first, second = variables(), variables()
    path = Checkpoint(**first).write(tmp_path / "new" / "x")
    assert path == str(tmp_path / "new" / "x.npz")
    second["w"].assign(np.zeros((2, 3), np.float32))
    second["layers"][0]["b"].assign(0)
    assert Checkpoint(**second).restore(path) == path
    assert (second["w"].numpy() == first["w"].numpy()).all()
    assert int(second["layers"][0]["b"]) == 4


def test_numpy_reads_the_file(tmp_path):
    path = Checkpoint(**variables()).write(tmp_path / "x")
    with np.load(path) as archive:
        names = set(archive.files) - {file.NOTES}
        assert names == {"w", "layers/0/b", "layers/1/b"}
        assert archive["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_saves_are_numbered_and_go_on_after_a_restore(tmp_path):
    checkpoint = Checkpoint(step=Variable(1))
    paths = [checkpoint.save(tmp_path / "ckpt") for _ in range(2)]
    assert [os.path.basename(path) for path in paths] == ["ckpt-1.npz", "ckpt-2.npz"]
    again = Checkpoint(step=Variable(0))
    again.restore(paths[1])
    assert again.save(tmp_path / "ckpt").endswith("ckpt-3.npz")


def test_nothing_to_restore():
    variable = Variable(5)
    assert Checkpoint(v=variable).restore(None) is None
    assert int(variable) == 5


def test_narrow_floats(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (np.float16, ml_dtypes.bfloat16):
        saved, restored = (Variable(np.full(3, x, dtype)) for x in (1.5, 0))
        path = Checkpoint(v=saved).write(tmp_path / "x")
        Checkpoint(v=restored).restore(path)
        assert restored.dtype == dtype
        assert restored.numpy().tolist() == [1.5] * 3


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"v": Variable(np.zeros(2))}, r"v is float64\[3\]; wanted float64\[2\]"),
        ({"v": Variable(np.zeros(3, int))}, r"v is float64\[3\]; wanted int64\[3\]"),
        ({"u": Variable(np.zeros(3))}, "u is not in the file; v has no variable"),
    ],
)
def test_what_does_not_fit_changes_nothing(tmp_path, other, text):
    path = Checkpoint(v=Variable(np.ones(3))).write(tmp_path / "x")
    checkpoint = Checkpoint(a=Variable(7.0), **other)
    with pytest.raises(CheckpointError, match=text):
        checkpoint.restore(path)
    assert all((v.numpy() != 1).all() for v in checkpoint.variables.values())


def test_a_part_on_request(tmp_path):
    path = Checkpoint(a=Variable(1), b=Variable(2)).write(tmp_path / "x")
    b, c = Variable(0), Variable(3)
    Checkpoint(b=b, c=c).restore(path, partial=True)
    assert (int(b), int(c)) == (2, 3)


def test_wrong_items():
    with pytest.raises(TypeError, match="item a/1 is 5"):
        Checkpoint(a=[Variable(0), 5])
    with pytest.raises(ValueError, match="'a/b'"):
        Checkpoint(**{"a": {"b": Variable(0)}, "a/b": Variable(1)})
    with pytest.raises(ValueError, match="no variables"):
        Checkpoint().save("x")
    with distribute.MultiWorkerMirroredStrategy().scope():
        theirs = Variable(0)
    with pytest.raises(distribute.MixedStrategiesError):
        Checkpoint(a=Variable(0), b=theirs).save("x")


def test_not_inside_run(tmp_path):
    strategy = distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        checkpoint = Checkpoint(v=Variable(0))
    with pytest.raises(RuntimeError, match="inside run"):
        strategy.run(lambda: checkpoint.save(tmp_path / "x"))


def test_a_variable_without_one_value_cannot_be_saved(tmp_path):
    with distribute.MultiWorkerMirroredStrategy().scope():
        variable = Variable(
            1.0, synchronization=distribute.VariableSynchronization.ON_READ
        )
    with pytest.raises(ValueError, match="aggregation NONE"):
        Checkpoint(v=variable).save(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_every_damaged_byte_is_noticed(tmp_path):
    """The file is refused or, where the byte meant nothing, reads the same."""
    path = tmp_path / "x.npz"
    arrays = {"a": np.arange(5.0), "b": np.array(7)}
    file.write(path, arrays, {"save_counter": 1})
    whole = path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        path.write_bytes(damaged)
        try:
            read, _ = file.read(path)
        except DamagedCheckpointError:
            refused += 1
        else:
            assert {k: v.tolist() for k, v in read.items()} == {
                k: v.tolist() for k, v in arrays.items()
            }
    assert refused > len(whole) // 2


def test_a_file_cut_short_is_refused_and_the_one_before_offered(tmp_path):
    checkpoint = Checkpoint(v=Variable(np.arange(100)))
    paths = [checkpoint.save(tmp_path / "ckpt") for _ in range(4)]
    for place, path in enumerate(paths[2:]):
        size = os.path.getsize(path)
        os.truncate(path, size - 1 if place else size // 2)
    offer = f"{re.escape(paths[3])} is damaged .*; {re.escape(paths[1])} is whole"
    with pytest.raises(DamagedCheckpointError, match=offer):
        checkpoint.restore(paths[3])
    os.truncate(paths[0], 0)
    with pytest.raises(DamagedCheckpointError, match="no whole one before it"):
        checkpoint.restore(paths[0])
    with pytest.raises(FileNotFoundError):
        checkpoint.restore(tmp_path / "other-1")


def test_a_disk_that_will_not(tmp_path):
    (tmp_path / "file").write_text("")
    checkpoint = Checkpoint(v=Variable(0))
    with pytest.raises(OSError, match="file"):
        checkpoint.save(tmp_path / "file" / "ckpt")
    assert checkpoint.save_counter == 0


def test_the_manager_keeps_the_latest(tmp_path):
    step = Variable(0)
    manager = CheckpointManager(Checkpoint(step=step), tmp_path / "runs", 2)
    assert manager.latest_checkpoint is manager.restore_or_initialize() is None
    for number in range(1, 5):
        step.assign(number)
        assert manager.save().endswith(f"ckpt-{number}.npz")
    assert [os.path.basename(path) for path in manager.checkpoints] == [
        "ckpt-3.npz",
        "ckpt-4.npz",
    ]
    assert len(list((tmp_path / "runs").iterdir())) == 2
    fresh = CheckpointManager(Checkpoint(step=step), tmp_path / "runs", None)
    step.assign(0)
    assert fresh.restore_or_initialize() == manager.latest_checkpoint
    assert int(step) == 4
    assert fresh.save(100).endswith("ckpt-100.npz")
    assert fresh.save().endswith("ckpt-101.npz")
    assert len(fresh.checkpoints) == 4
    with pytest.raises(ValueError, match="max_to_keep is 0"):
        CheckpointManager(Checkpoint(step=step), tmp_path, 0)


SAVER = """
import sys, numpy as np, strategy
step = strategy.Variable(0)
arrays = [strategy.Variable(np.zeros(1 << 18)) for _ in range(4)]
checkpoint = strategy.Checkpoint(step=step, arrays=arrays)
manager = strategy.CheckpointManager(checkpoint, sys.argv[1], max_to_keep=3)
manager.restore_or_initialize()
while True:
    step.assign_add(1)
    for array in arrays:
        array.assign(np.full(1 << 18, float(step.numpy())))
    manager.save()
    print(int(step), flush=True)
"""


def test_kill_9_in_the_middle_of_a_save(tmp_path):
    """Whatever was said to be saved is there, whole, and the next run goes on."""
    saved = middle = 0
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, tmp_path], stdout=subprocess.PIPE, text=True
        )
        try:
            process.stdout.readline()
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                if list(tmp_path.glob("*" + file.PARTIAL)):
                    break
        finally:
            os.kill(process.pid, signal.SIGKILL)
            rest, _ = process.communicate(timeout=20)
        middle += bool(list(tmp_path.glob("*" + file.PARTIAL)))
        saved = int(rest.split()[-1]) if rest.strip() else saved
        for path in tmp_path.glob("*.npz"):
            arrays, _ = file.read(path)
            assert all(
                (arrays[f"arrays/{i}"] == arrays["step"]).all() for i in range(4)
            )
        newest = max(file.numbered(tmp_path, "ckpt").items())[1]
        assert file.read(newest)[0]["step"] >= saved
    assert middle > 0
