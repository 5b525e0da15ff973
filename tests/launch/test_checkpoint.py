"""Jobs that save and do not come to their end."""

import re

import numpy as np
from harness.launch import run_mpi

SAVER = """
import os, signal, sys
import numpy as np
import collectives, strategy
folder, kill = sys.argv[1], int(sys.argv[2])
comm = collectives.world()
mirrored = strategy.MultiWorkerMirroredStrategy()
with mirrored.scope():
    step = strategy.Variable(0)
    arrays = [strategy.Variable(np.zeros(1 << 19)) for _ in range(4)]
checkpoint = strategy.Checkpoint(step=step, arrays=arrays)
manager = strategy.CheckpointManager(checkpoint, folder, max_to_keep=2)
manager.restore_or_initialize()

def die(descriptor):
    os.kill(os.getpid(), signal.SIGKILL)

for number in range(4):
    step.assign_add(1)
    for array in arrays:
        array.assign(np.full(1 << 19, float(step.numpy())))
    if kill and number == 2 and comm.rank == 0:
        os.fsync = die  # all is written by then, and nothing has its name yet
    manager.save()
    if comm.rank == 0:
        print("saved", int(step.numpy()), flush=True)
"""


def test_a_chief_killed_in_the_middle_of_a_save(tmp_path):
    ended = run_mpi(2, SAVER, timeout=60, args=[str(tmp_path), "1"])
    assert ended.returncode != 0
    assert "saved 2" in ended.stdout
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[:2] == ["ckpt-1.npz", "ckpt-2.npz"]
    assert re.fullmatch(r"ckpt-3\.npz\.\d+\.partial", names[2]), names
    ended = run_mpi(2, SAVER, timeout=60, args=[str(tmp_path), "0"])
    assert ended.returncode == 0, ended.stderr
    first = int(ended.stdout.split()[1])
    assert first in (
        3,
        4,
    )  # it went on from what was whole: 2, or 3 if the kill came late
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"ckpt-{first + more}.npz" for more in (2, 3)]
    with np.load(tmp_path / names[-1]) as archive:
        assert (archive["arrays/0"] == archive["step"]).all()


LONELY = """
import sys
import collectives, strategy
mirrored = strategy.MultiWorkerMirroredStrategy()
with mirrored.scope():
    checkpoint = strategy.Checkpoint(v=strategy.Variable(1.0))
if collectives.world().rank == 0:
    checkpoint.save(sys.argv[1] + "/ckpt")
else:
    import time
    time.sleep(30)
"""


def test_a_save_on_one_rank_only_ends_within_the_deadline(tmp_path):
    ended = run_mpi(
        2, LONELY, timeout=25, args=[str(tmp_path)], env={"RINGFOLD_TIMEOUT_S": "2"}
    )
    assert ended.returncode != 0
    assert "CollectiveTimeoutError" in ended.stderr
    assert not list(tmp_path.iterdir())
