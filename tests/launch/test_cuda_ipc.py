"""Jobs on pretended devices that end badly, or cannot share the devices' memory."""

import pytest
from harness import gpus
from harness.launch import run_mpi

HEAD = """
import os, signal
import cupy
import numpy as np
import collectives
comm = collectives.world()
x = cupy.full(100_000, 1 + comm.rank, np.float32)
"""
ENDS_S = 60.0


def ended(body: str, **lacking: str):
    env = {**gpus.variables("0,1,1"), **lacking}
    return run_mpi(3, HEAD + body, timeout=ENDS_S, env=env)


def test_a_peer_that_dies_is_named():
    body = """
for turn in range(3):
    if turn == 2 and comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.all_reduce(x, algorithm="cuda_ipc")
    if comm.rank == 0: print("turn", turn, flush=True)
"""
    job = ended(body)
    assert job.returncode != 0
    assert job.stdout.count("turn") == 2, job.stderr


@pytest.mark.parametrize("lacks", ["ipc", "peer"])
def test_what_the_driver_refuses_is_told_on_every_rank(lacks):
    body = """
try:
    comm.all_reduce(x, algorithm="cuda_ipc")
except collectives.UnsupportedError as error:
    told = comm.all_gather_object(str(error))
    assert len(set(told)) == 1, told
    print("refused", comm.rank, error, flush=True)
assert (comm.all_reduce(x).get() == 6).all()
"""
    job = ended(body, CUPY_DOUBLE_LACKS=lacks)
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("refused") == 3, job.stdout + job.stderr
    assert "all_reduce by cuda_ipc: rank 0" in job.stdout
