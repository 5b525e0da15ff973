"""Jobs that use NCCL, on pretended devices: how they end."""

from harness import gpus
from harness.launch import run_mpi

HEAD = """
import sys, time
import cupy, numpy as np
import collectives
from collectives.transport import nccl
comm = collectives.world()
ONE = comm.rank == 1
"""
ENDS_S = 30.0  # seconds are wanted; the rest is for a machine that is busy


def job(body):
    return run_mpi(3, HEAD + body, timeout=ENDS_S, env=gpus.variables("0,1,2"))


def test_a_job_that_closes_nothing_ends_nccl_by_itself():
    body = """
destroy = cupy.cuda.nccl.NcclCommunicator.destroy
def telling(self):
    print("destroyed", flush=True)
    destroy(self)
cupy.cuda.nccl.NcclCommunicator.destroy = telling
part = comm.split(comm.rank % 2)
for one in (comm, part):
    one.all_reduce(cupy.ones(3))
comm.start_all_reduce(cupy.ones(3)).wait()
del part
"""
    ended = job(body)
    assert ended.returncode == 0, ended.stderr
    # Of the world, of its twin for the background, and of the part with two ranks.
    assert ended.stdout.count("destroyed") >= 6, ended.stdout + ended.stderr


def test_a_job_in_which_nccl_never_comes_up_ends_with_a_reason():
    body = """
if ONE:
    nccl.join = lambda *arguments: time.sleep(1000)
comm.with_options(timeout_s=2).all_reduce(cupy.ones(3))
"""
    ended = job(body)
    assert ended.returncode != 0
    assert "CollectiveTimeoutError" in ended.stderr
    assert "NCCL could not be opened within 2 s" in ended.stderr


def test_a_rank_that_fails_while_others_wait_in_nccl_ends_the_job():
    body = """
comm.all_reduce(cupy.ones(3))
if ONE:
    def fail(*arguments):
        raise KeyError("boom")
    nccl.Nccl.launch = fail
comm.all_reduce(cupy.ones(3))
"""
    ended = job(body)
    assert ended.returncode != 0
    assert "KeyError: 'boom'" in ended.stderr
