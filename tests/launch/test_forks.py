"""Processes that a rank starts: forked, spawned, or programs of their own."""

import pytest
from harness.launch import run_mpi

HEAD = """
import multiprocessing, os, subprocess, sys, time
from sys import exit as leave
import numpy as np
import collectives
from collectives.launcher import clean_environment

comm = None

def square(x):
    return x * x

def call(x):
    try:
        return comm.all_reduce(x)
    except collectives.BrokenCommunicatorError as error:
        return str(error)

def main():
    global comm
    comm = collectives.world()
    assert comm.all_reduce(1.0) == comm.size
    body()
    assert comm.all_reduce(2.0) == 2 * comm.size
    print("parent ends", flush=True)
"""
TAIL = """
if __name__ == "__main__":
    main()
"""
REFUSAL = "this process was forked from rank 0; a forked child cannot use MPI"


def run(body, ranks=2, head="", env=None):
    """Run `body`, in which the ranks start processes, between two collectives."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    script = f"{head}{HEAD}\ndef body():\n{lines}{TAIL}"
    ended = run_mpi(ranks, script, timeout=60, env=env)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("parent ends") == ranks, ended.stdout
    return ended


FORK = """
if comm.rank:
    return
child = os.fork()
if child == 0:
    {child}
print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ENDINGS = {
    "sys.exit()": 0,
    "sys.exit(3)": 3,
    "sys.exit('a text')": 1,
    "raise SystemExit(4)": 4,
    "leave(5)": 5,
    "exit(6)": 6,
    "os._exit(7)": 7,
    "raise KeyError('boom')": 1,
    "raise KeyboardInterrupt": 130,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_forked_child_ends_with_its_own_status(ending):
    ended = run(FORK.format(child=ending))
    assert f"child: {ENDINGS[ending]}\n" in ended.stdout
    assert ended.stderr.count("Traceback") == ("raise K" in ending)
    if "boom" in ending:
        assert "KeyError: 'boom'" in ended.stderr
    if "text" in ending:
        assert "a text" in ended.stderr


@pytest.mark.parametrize("head", ["", "from mpi4py import MPI\n"])
def test_a_forked_child_that_comes_to_the_end_of_the_script(head):
    """Also where mpi4py was imported first, and will finalize MPI by itself."""
    body = """
if comm.rank == 0 and os.fork() == 0:
    comm.all_reduce = lambda x: 2 * comm.size  # so that main() goes on
    print("in child", end="", flush=False)
    return
"""
    ended = run_mpi(2, head + HEAD + "\ndef body():\n" + _indented(body) + TAIL)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("parent ends") == 3
    assert "in child" in ended.stdout, "what was printed must be flushed"


def _indented(body):
    return "".join(f"    {line}\n" for line in body.strip().splitlines())


def test_a_forked_child_is_refused_collectives_and_cannot_disturb():
    body = """
def refused(what):
    try:
        what()
    except collectives.BrokenCommunicatorError as error:
        print(f"<{error}>", flush=True)
comm.start_barrier().wait()
if comm.rank == 0:
    handle = comm.start_all_reduce(1.0)  # cannot end before rank 1 has started it
    child = os.fork()
    if child == 0:
        refused(lambda: comm.all_reduce(1.0))
        refused(lambda: collectives.barrier())
        refused(lambda: comm.send(np.ones(3), 1))
        refused(lambda: comm.start_barrier())
        refused(lambda: collectives.from_mpi(comm.mpi))
        refused(handle.wait)
        with comm:
            pass
        comm.close()
        sys.exit(0)
    print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
comm.barrier()
if comm.rank == 1:
    handle = comm.start_all_reduce(1.0)
assert handle.wait() == 2
"""
    ended = run(body)
    assert ended.stdout.count(f"{REFUSAL}>") == 6
    assert "child: 0\n" in ended.stdout


def test_a_forked_child_cannot_touch_its_parents_registered_arrays():
    """Their memory must not go back when the child lets go of its copies."""
    body = """
x = comm.full(1 << 16, comm.rank + 1.0)
if comm.rank == 0:
    child = os.fork()
    if child == 0:
        del x
        try:
            comm.zeros(1 << 16)
        except collectives.BrokenCommunicatorError as error:
            print(f"<{error}>", flush=True)
        sys.exit(0)
    os.waitpid(child, 0)
assert (x == comm.rank + 1).all()
assert (comm.all_reduce(x) == 3).all()
"""
    ended = run(body)
    assert ended.stdout.count(f"{REFUSAL}>") == 1


def test_what_the_parent_has_registered_does_not_run_in_the_child():
    body = """
import atexit
if comm.rank == 0:
    atexit.register(print, "hook", flush=True)
"""
    ended = run(body + FORK.format(child="sys.exit(3)"))
    assert ended.stdout.count("hook") == 1


def test_a_pool_of_forked_processes_in_the_middle_of_a_job():
    body = """
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(square, range(6)) == [0, 1, 4, 9, 16, 25]
    assert comm.all_reduce(1.0) == comm.size
    (text,) = pool.map(call, [1.0])
    assert f"forked from rank {comm.rank}" in text, text
process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(3,))
process.start()
process.join()
assert process.exitcode == 3
"""
    run(body)


def test_a_pool_of_spawned_processes_is_a_world_of_its_own_each():
    body = """
from unittest import mock
with mock.patch.dict(os.environ, clean_environment(), clear=True):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(square, range(4)) == [0, 1, 4, 9]
        assert pool.apply(eval, ("__import__('collectives').world().size",)) == 1
"""
    run(body)


def test_a_program_in_a_clean_environment_is_a_world_of_its_own():
    body = """
code = "import collectives; print(collectives.world().size, end='')"
program = [sys.executable, "-c", code]
done = subprocess.run(program, env=clean_environment(), capture_output=True, text=True)
assert (done.returncode, done.stdout) == (0, "1"), done.stderr
"""
    run(body)


def test_a_program_in_the_environment_of_a_rank_is_told_how_to_start_it():
    body = """
if comm.rank == 1:
    program = [sys.executable, "-c", "import collectives; collectives.world()"]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 1
    assert "this program was started by rank 1 (process " in done.stderr, done.stderr
    assert "env=collectives.launcher.clean_environment()" in done.stderr
"""
    run(body)
