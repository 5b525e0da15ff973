"""Checkpoints of one process: names, files, damage, and a process that is killed."""

import os
import re
import signal
import subprocess
import sys
import time
from itertools import product

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
    for dtype, shape in product((np.float16, ml_dtypes.bfloat16), ((3,), (), (0, 2))):
        saved, restored = (Variable(np.full(shape, x, dtype)) for x in (1.5, 0))
        path = Checkpoint(v=saved).write(tmp_path / "x")
        Checkpoint(v=restored).restore(path)
        assert restored.dtype == dtype
        assert restored.numpy().tolist() == np.full(shape, 1.5).tolist()


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


FULL = """
import resource, sys, numpy as np, strategy
value = strategy.Variable(np.zeros(100_000))
manager = strategy.CheckpointManager(strategy.Checkpoint(v=value), sys.argv[1], 2)
manager.save()
value.assign(np.ones(100_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
try:
    manager.save()
except OSError as error:
    print(type(error).__name__, manager.latest_checkpoint)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
print(manager.save())
"""


def test_a_disk_that_is_full_in_the_middle(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    first, second = tmp_path / "ckpt-1.npz", tmp_path / "ckpt-2.npz"
    assert ended.stdout.split() == ["OSError", str(first), str(second)], ended.stderr
    assert (file.read(first)[0]["v"] == 0).all()
    assert (file.read(second)[0]["v"] == 1).all()
    assert len(list(tmp_path.iterdir())) == 2


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
import os, signal, sys, numpy as np, strategy
folder, kill_in = sys.argv[1], sys.argv[2]
step = strategy.Variable(0)
arrays = [strategy.Variable(np.zeros(1 << 17)) for _ in range(4)]
checkpoint = strategy.Checkpoint(step=step, arrays=arrays)
manager = strategy.CheckpointManager(checkpoint, folder, max_to_keep=3)
manager.restore_or_initialize()
begun = int(step)

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

while True:
    step.assign_add(1)
    for array in arrays:
        array.assign(np.full(1 << 17, float(step.numpy())))
    if kill_in and int(step) == begun + 2:
        setattr(os, kill_in, die)
    manager.save()
    print(int(step), flush=True)
"""


def begin(folder, kill_in=""):
    return subprocess.Popen(
        [sys.executable, "-c", SAVER, folder, kill_in],
        stdout=subprocess.PIPE,
        text=True,
    )


def assert_all_whole(folder):
    """Check every file that has its name; return the step of the newest."""
    steps = []
    for path in file.numbered(folder, "ckpt").values():
        arrays, _ = file.read(path)
        assert all((arrays[f"arrays/{i}"] == arrays["step"]).all() for i in range(4))
        steps.append(int(arrays["step"]))
    return steps[-1]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_kill_9_in_the_middle_of_a_save(tmp_path, call):
    """Twice: the second run goes on from what the first one has left."""
    for saved in (1, 2):
        process = begin(tmp_path, call)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert printed.split() == [str(saved)]
        assert [path.name for path in tmp_path.glob("*" + file.PARTIAL)] == [
            f"ckpt-{saved + 1}.npz.{process.pid}{file.PARTIAL}"
        ]
        assert assert_all_whole(tmp_path) == saved


def test_two_processes_that_save_to_one_place(tmp_path):
    """Wrong, but what is there is what one of them has written."""
    processes = [begin(tmp_path, "replace") for _ in range(2)]
    for process in processes:
        process.communicate(timeout=60)
    assert assert_all_whole(tmp_path) in (1, 2)  # one may have begun after the other


def test_kill_9_at_any_time(tmp_path):
    """Whatever was said to be saved is there, whole, and the next run goes on."""
    for wait_s in (0.01, 0.02, 0.03):
        process = begin(tmp_path)
        try:
            first = process.stdout.readline()
            time.sleep(wait_s)
        finally:
            process.kill()
            rest, _ = process.communicate(timeout=60)
        assert assert_all_whole(tmp_path) >= int((first + rest).split()[-1])
