"""Jobs that fail leave files, whatever ends them; `ringfold trace` tells where."""

import json

import pytest
from harness.launch import run_mpi

from collectives.trace import main

HEAD = """
import os, signal, sys, time
import numpy as np
import collectives
comm = collectives.world()
pair = comm.group([0, 1])
ONE = comm.rank == 1

def step(x):
    return comm.all_reduce(x)

step(np.ones(3, np.float32))
"""

# what ranks do after call #2 -> what is read about rank 1, and about the others
FAILURES = {
    "does not come": (
        "comm = comm.with_options(timeout_s=1)\n"
        "if ONE: time.sleep(100)\n"
        "step(np.ones(3))",
        "rank 1 absent after all_reduce #2",
        "ranks 0 2 failed all_reduce(float64",
    ),
    "makes another call": (
        "step(np.ones(3)) if not ONE else comm.broadcast(np.ones(3))",
        "rank 1 failed broadcast(float64",
        "ranks 0 2 failed all_reduce(float64",
    ),
    "is in another group": (
        "pair.barrier() if ONE else comm.barrier()",
        "rank 1 absent after all_reduce #2",
        "ranks 0 2 failed barrier",
    ),
    "is killed": (
        "if ONE: time.sleep(2); os.kill(os.getpid(), signal.SIGKILL)\nstep(np.ones(3))",
        "rank 1 absent after all_reduce #2",
        "all_reduce(float64",
    ),
    "raises": (
        "if ONE: time.sleep(2); raise KeyError('boom')\nstep(np.ones(3))",
        "rank 1 absent after all_reduce #2",
        "ranks 0 2 started all_reduce(float64",
    ),
}


def squeezed(text):
    return " ".join(text.split())


@pytest.mark.parametrize("failure", FAILURES)
def test_where_the_ranks_part_is_found(failure, tmp_path, capsys):
    body, of_one, of_others = FAILURES[failure]
    ended = run_mpi(3, HEAD + body, timeout=30, env={"RINGFOLD_TRACE": str(tmp_path)})
    assert ended.returncode != 0, ended.stdout
    names = [file.name for file in sorted(tmp_path.glob("*"))]
    assert names == [f"ringfold-rank-{rank}.json" for rank in range(3)], ended.stderr
    assert main([str(tmp_path)]) == 1
    report = squeezed(capsys.readouterr().out)
    assert "group [0, 1, 2]: the ranks part at call #3" in report
    assert "the last common call is all_reduce(float32" in report
    assert "script.py:10 in step" in report
    assert of_one in report
    assert of_others in report


def test_a_job_that_ends_well_does_not_diverge(tmp_path, capsys):
    ended = run_mpi(3, HEAD, timeout=30, env={"RINGFOLD_TRACE": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    chrome = tmp_path / "timeline.json"
    assert main([str(tmp_path), "--chrome", str(chrome)]) == 0
    assert "no divergence" in capsys.readouterr().out
    events = json.loads(chrome.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2}


def test_without_a_folder_stderr_tells_the_latest_calls():
    ended = run_mpi(3, HEAD + "if ONE: raise KeyError('boom')\nstep(1)", timeout=30)
    assert ended.returncode != 0
    told = "last calls of rank 1: group #1 done (script.py:6); all_reduce #2 done"
    assert told in ended.stderr


def test_a_folder_that_cannot_be_written_does_not_affect_the_job(tmp_path):
    (tmp_path / "file").write_text("in the way")
    folder = str(tmp_path / "file")
    ended = run_mpi(2, HEAD, timeout=30, env={"RINGFOLD_TRACE": folder})
    assert ended.returncode == 0, ended.stderr
    for rank in range(2):
        assert ended.stderr.count(f"rank {rank} cannot write its trace") == 1


def test_ranks_of_a_duplicate_are_named_by_their_numbers_in_the_job(tmp_path):
    body = f"""
from mpi4py import MPI
some = MPI.COMM_WORLD.Split(comm.rank == 0, -comm.rank)
collectives.from_mpi(some).barrier()
comm.dump_trace({str(tmp_path)!r})
comm.barrier()
"""
    ended = run_mpi(3, HEAD + body, timeout=30)
    assert ended.returncode == 0, ended.stderr
    for rank in range(3):
        file = tmp_path / f"ringfold-rank-{rank}.json"
        contents = json.loads(file.read_text())
        last = contents["calls"][-1]
        ranks = contents["groups"][last["group"]]["ranks"]
        assert (contents["rank"], contents["size"]) == (rank, 3)
        assert ranks == ([0] if rank == 0 else [2, 1])


def test_ranks_that_wait_for_each_other_are_told_and_can_go_on():
    """With the default deadline of ten minutes: it is found while they wait."""
    body = """
try:
    pair.barrier() if comm.rank == 0 else comm.barrier()
except collectives.MismatchError as error:
    print(f"<{error}>", flush=True)
assert step(np.float64(comm.rank)) == 3
if pair:
    assert pair.all_reduce(1.0) == 2
"""
    ended = run_mpi(3, HEAD + body, timeout=30)
    assert ended.returncode == 0, ended.stderr
    text = (
        "<the ranks wait for each other: rank 0 is in barrier #1 of group [0, 1], "
        "waiting for rank 1; rank 1 is in barrier #3 of group [0, 1, 2], waiting for "
        "rank 0>"
    )
    assert ended.stdout.count(text) == 3, ended.stdout


def test_a_cycle_of_a_message_and_a_call_is_told_at_the_deadline():
    body = """
comm = comm.with_options(timeout_s=1)
try:
    if comm.rank == 0: comm.recv(np.ones(3), 1)
    else: pair.with_options(timeout_s=2).barrier() if ONE else time.sleep(3)
except collectives.CollectiveTimeoutError as error:
    print(f"<{error}>", flush=True)
"""
    ended = run_mpi(3, HEAD + body, timeout=30)
    assert ended.returncode != 0, "a broken communicator ends the job"
    assert "rank 1 has been in barrier #1 of group [0, 1] for 1" in ended.stdout
    assert "waiting for rank 0: a cycle>" in ended.stdout
