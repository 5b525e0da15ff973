"""Strategies of one process start no MPI, and need none to be installed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys
sys.modules["mpi4py"] = None  # as if it were not installed
import numpy as np
import strategy as distribute

strategy = {strategy}
with strategy.scope():
    weight = distribute.Variable(np.zeros(2), aggregation=distribute.{mean})

def step(x):
    context = distribute.get_replica_context()
    gradient = context.all_reduce("MEAN", x)
    context.all_gather(x, axis=0)
    weight.assign_add(gradient)

strategy.run(step, args=(np.ones(2),))
assert weight.numpy().tolist() == [1, 1], weight
assert strategy.reduce("MEAN", weight, axis=None).tolist() == [1, 1]
"""


@pytest.mark.parametrize(
    "strategy",
    [
        'distribute.MirroredStrategy(["CPU:0", "CPU:1"])',
        'distribute.OneDeviceStrategy("CPU:0")',
        'distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"])',
        "distribute.MultiWorkerMirroredStrategy()",
        'distribute.MultiWorkerMirroredStrategy(devices=["CPU:0", "CPU:1"])',
        "distribute.get_strategy()",
    ],
)
def test_one_process_needs_no_mpi(strategy):
    program = PROGRAM.format(strategy=strategy, mean="VariableAggregation.MEAN")
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
