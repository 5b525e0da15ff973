"""One rank fails: the whole job ends, soon, with a non-zero status, and says why."""

import pytest
from harness.launch import run_mpi

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import collectives
comm = collectives.world()
comm.barrier()
print("ready", flush=True)
ONE = comm.rank == 1
"""
TAIL = "\ncomm.all_reduce(np.ones(3))\n"

ENDS_S = 20.0  # seconds are wanted; the rest is for a machine that is busy


def raise_in_thread() -> str:
    return (
        "def fail(): raise RuntimeError('boom')\n"
        "if ONE: threading.Thread(target=fail).start(); time.sleep(1000)"
    )


# what rank 1 does -> what must be read on stderr
ENDINGS = {
    "exception": (
        "if ONE: raise KeyError('boom')",
        ["KeyError: 'boom'", "rank 1 of 3"],
    ),
    "exception later": (
        "if ONE: time.sleep(1); raise KeyError('boom')",
        ["KeyError: 'boom'", "rank 1 of 3"],
    ),
    "exception in a thread": (raise_in_thread(), ["RuntimeError: boom", "rank 1 of 3"]),
    "sys.exit(3)": ("if ONE: sys.exit(3)", ["rank 1 left"]),
    "sys.exit(0)": ("if ONE: sys.exit(0)", ["rank 1 left"]),
    "SIGKILL": ("if ONE: time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)", []),
    "endless loop": (
        "comm = comm.with_options(timeout_s=1)\nwhile ONE: pass",
        ["CollectiveTimeoutError", "rank 1 has been in user code"],
    ),
    "SIGSTOP": (
        "comm = comm.with_options(timeout_s=1)\n"
        "if ONE: os.kill(os.getpid(), signal.SIGSTOP)",
        ["CollectiveTimeoutError", "rank 1 has been in user code"],
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_job_ends(ending):
    body, texts = ENDINGS[ending]
    ended = run_mpi(3, HEAD + body + TAIL, timeout=ENDS_S)
    assert ended.returncode != 0, ended.stderr
    assert ended.stdout.count("ready") == 3, ended.stderr
    for text in texts:
        assert text in ended.stderr


CALLS = {
    "in the background": "comm.start_all_reduce(np.ones(3)).wait()",
    "on a group": "group.all_reduce(np.ones(3))",
    "on objects": "comm.all_gather_object(1)",
    "to a neighbour": "comm.recv(np.zeros(3), 1)",
}


@pytest.mark.parametrize(
    "ending",
    [
        "exception",
        "SIGSTOP",
        pytest.param("sys.exit(3)", marks=pytest.mark.full),
        pytest.param("SIGKILL", marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("call", CALLS)
def test_the_job_ends_in_the_middle_of_every_kind_of_call(call, ending):
    body, _ = ENDINGS[ending]
    ready = "comm = comm.with_options(timeout_s=2)\ngroup = comm.split(0)\n"
    ready += "comm.start_barrier().wait()\n"
    ended = run_mpi(3, f"{HEAD}{ready}{body}\n{CALLS[call]}\n", timeout=ENDS_S)
    assert ended.returncode != 0, ended.stderr


def test_the_job_ends_when_one_rank_reaches_the_end_of_its_script():
    body = "if not ONE: comm.all_reduce(np.ones(3))"
    ended = run_mpi(3, HEAD + body, timeout=ENDS_S)
    assert ended.returncode != 0
    assert "rank 1 left" in ended.stderr


def test_the_first_traceback_is_on_top():
    body = "if ONE: raise KeyError('boom')"
    ended = run_mpi(3, HEAD + body + TAIL, timeout=ENDS_S)
    first = ended.stderr[ended.stderr.index("Traceback") :]
    assert "KeyError: 'boom'" in first.split("\nringfold:")[0]


def test_a_rank_stuck_inside_the_mpi_is_ended_with_a_dump():
    body = """
from collectives.algorithms import TABLE
comm = comm.with_options(timeout_s=1)
if ONE:  # agrees to the call, and then never makes it
    object.__setattr__(TABLE["all_reduce"]["native"], "run", lambda t: time.sleep(1000))
comm.all_reduce(np.ones(3), algorithm="native")
"""
    ended = run_mpi(3, HEAD + body, timeout=ENDS_S)
    assert ended.returncode != 0
    assert "stuck in MPI_Allreduce (all_reduce #2) for 1 s" in ended.stderr
    assert "in _reduce" in ended.stderr  # the dump names the place


def test_a_broken_communicator_ends_the_job_at_exit():
    body = """
comm = comm.with_options(timeout_s=0.5)
if ONE:
    time.sleep(3)
else:
    try:
        comm.all_reduce(np.ones(3))
    except collectives.CollectiveTimeoutError as error:
        print("caught", error)
    try:
        comm.barrier()
    except collectives.BrokenCommunicatorError:
        print("broken", flush=True)
"""
    ended = run_mpi(2, HEAD + body, timeout=ENDS_S)
    assert ended.returncode != 0
    assert "caught" in ended.stdout
    assert "broken" in ended.stdout


def test_ranks_that_end_at_different_times_end_well():
    ended = run_mpi(3, HEAD + "time.sleep(comm.rank / 2)", timeout=ENDS_S)
    assert ended.returncode == 0, ended.stderr


def test_the_status_of_a_common_exit_is_kept():
    ended = run_mpi(2, HEAD + "sys.exit(3)", timeout=ENDS_S)
    assert ended.returncode == 3, ended.stderr


def test_the_hooks_can_be_turned_off():
    body = "import sys\nassert sys.excepthook is sys.__excepthook__"
    ended = run_mpi(2, HEAD + body, timeout=ENDS_S, env={"RINGFOLD_ABORT": "0"})
    assert ended.returncode == 0, ended.stderr


def test_different_options_are_an_error_everywhere():
    script = """
import os, sys
from mpi4py import MPI
import collectives
rank = MPI.COMM_WORLD.Get_rank()
if rank == 1:
    os.environ["RINGFOLD_TIMEOUT_S"] = "5"
try:
    collectives.world()
except collectives.MismatchError as error:
    print(f"<{error}>", flush=True)
"""
    ended = run_mpi(2, script, timeout=ENDS_S, env={"RINGFOLD_TIMEOUT_S": "60"})
    text = "<the ranks run with different timeout_s: 60.0 on ranks [0]; 5.0 on ranks"
    assert ended.stdout.count(text) == 2, ended.stderr


def test_a_wrong_option_on_one_rank_ends_the_job():
    script = """
import os
import collectives
from collectives.launcher import read_launch
if read_launch().rank == 1:
    os.environ["RINGFOLD_NONSENSE"] = "1"
collectives.world().barrier()
"""
    ended = run_mpi(3, script, timeout=ENDS_S)
    assert ended.returncode != 0
    assert "RINGFOLD_NONSENSE is not an option" in ended.stderr
    assert "rank 1 of 3 ends the job" in ended.stderr
