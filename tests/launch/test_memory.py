"""Memory of a host as jobs find it: killed ranks, little of it, other kinds of it."""

import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from harness.launch import SHM, command, environment, installed, run_mpi

ENDS_S = 20.0  # seconds are wanted; the rest is for a machine that is busy
MARK = "TEST_OF_RINGFOLD"

# --- a rank is killed in the middle of a call ----------------------------------------

KILLED = """
import os, signal, threading
import numpy as np
import collectives
comm = collectives.world()
x = comm.full(3_000_000, comm.rank + 1.0)
total = comm.size * (comm.size + 1) / 2

def call(**how):
    {call}

call()
comm.barrier()
print("ready", flush=True)
if comm.rank == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
loops = {loops} and comm.rank == 2
while True:
    if not loops:
        call()
"""

CALLS = {
    "shared": "y = comm.all_reduce(np.ones(3_000_000), 'max', algorithm='shared')",
    "direct": "y = comm.all_reduce(np.ones(3_000_000), 'max', algorithm='direct')",
    "registered": "assert (comm.all_reduce(x, out=comm.empty(x.shape)) == total).all()",
    "SHARED": "assert comm.all_reduce(x, out=collectives.SHARED).array[-1] == total",
    "many": "comm.all_reduce_many([np.ones(20_000)] * 50)",
}


def survivors(mark):
    """Return the processes that were started under a mark and have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:  # ended in the meantime
            continue
    return found


def ours():
    return {path.name for path in SHM.glob("ringfold-*")}


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_the_job_ends_when_a_rank_is_killed_and_leaves_nothing(call, loops):
    """Also while another rank, which nobody can wake, is in user code."""
    mark, before = uuid.uuid4().hex, ours()
    script = KILLED.format(call=CALLS[call], loops=loops)
    start = time.monotonic()
    ended = run_mpi(3, script, timeout=ENDS_S, env={MARK: mark})
    assert ended.returncode != 0
    assert ended.stdout.count("ready") == 3, ended.stderr
    dead = ("rank 1 died", "KILLED", "Killed", "signal 9", "EXIT CODE: 9")
    assert any(text in ended.stderr + ended.stdout for text in dead), ended.stderr
    while survivors(mark) and time.monotonic() < start + ENDS_S:
        time.sleep(0.1)
    assert survivors(mark) == []
    assert ours() <= before


GIVES_UP = """
import time
import numpy as np
import collectives
from collectives.algorithms import direct, shared_sums
comm = collectives.world()
x = comm.full(500_000, comm.rank + 1.0)

def call(comm):
    {call}

call(comm)
if comm.rank == 1:
    slow, name = {slow}
    really = getattr(slow, name)
    def late(*arguments):
        setattr(slow, name, really)
        time.sleep(1.5)
        return really(*arguments)
    setattr(slow, name, late)
try:
    y = call(comm.with_options(timeout_s=1 + comm.rank))
    print("wrong" if (y != 3).any() else "right", flush=True)
except collectives.CollectiveTimeoutError:
    x[:] = 77  # it is the caller's again
    print("gave up", flush=True)
del x  # outside of `except`, where the traceback would keep it
others = [comm.full(500_000, 99.0) for _ in range(3)]
time.sleep(2.5 - comm.rank)
for other in others:
    print("touched" if (other != 99).any() else "untouched", flush=True)
"""

LATE = {
    "SHARED": (
        "return comm.all_reduce(x, out=collectives.SHARED).array",
        "shared_sums._Sum, 'add'",
    ),
    "registered": (
        "return comm.all_reduce(x, out=comm.empty(x.shape))",
        "shared_sums._Sum, 'add'",
    ),
    "in place": ("return comm.all_reduce(x, out=x)", "shared_sums._Sum, 'add'"),
    "direct": (
        "return comm.all_reduce(x, algorithm='direct')",
        "direct._Peers, 'fetch'",
    ),
}


@pytest.mark.parametrize(
    "kind",
    [
        "SHARED",
        "registered",
        pytest.param("in place", marks=pytest.mark.full),
        pytest.param("direct", marks=pytest.mark.full),
    ],
)
def test_who_is_too_late_gets_no_wrong_result_and_writes_into_nothing_else(kind):
    """One rank has given up and uses its memory again, while another still works."""
    call, slow = LATE[kind]
    if "SHARED" not in call and "algorithm" not in call:
        call = call.replace("out=", "algorithm='shared', out=")
    ended = run_mpi(2, GIVES_UP.format(call=call, slow=slow), timeout=ENDS_S)
    assert ended.stdout.count("gave up") == 2, ended.stdout + ended.stderr
    assert ended.stdout.split().count("untouched") >= 3
    assert "touched" not in ended.stdout.split()


# --- little memory, or of another kind -----------------------------------------------

HEAD = """
import os, resource, sys
import numpy as np
"""
USE = """
import collectives
from collectives import SHARED
comm = collectives.world()
p = comm.size
for size in (1, 1000, 300_000):
    x = np.full(size, comm.rank + 1.0)
    total = p * (p + 1) / 2
    assert (comm.all_reduce(x) == total).all()
    assert (comm.broadcast(x, root=p - 1) == p).all()
    mine = comm.empty(size)
    mine[:] = x
    assert (comm.all_reduce(mine, out=mine) == total).all()
    assert (comm.all_reduce(x, out=SHARED).array == total).all()
    assert (comm.all_gather(x[:5]) == np.repeat(np.arange(p) + 1, x[:5].size)).all()
with comm.split(comm.rank % 2) as half:
    assert (half.all_reduce(np.ones(100_000)) == half.size).all()
algorithm = comm.choose("all_reduce", 1000).algorithm
comm.barrier()
print(f"<{algorithm}>", flush=True)
"""


def check(ended, ranks, algorithm="shared"):
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"<{algorithm}>") == ranks, ended.stdout + ended.stderr


def test_without_memfd_memory_is_shared_through_dev_shm():
    before = ours()
    check(run_mpi(3, HEAD + "del os.memfd_create\n" + USE), 3)
    assert ours() <= before


def test_without_memfd_on_one_rank_only():
    one = "if os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')) == '1'"
    check(run_mpi(3, f"{HEAD}{one}: del os.memfd_create\n{USE}"), 3)


def test_where_no_memory_can_be_shared_messages_do():
    body = "from collectives import backing\nbacking.BACKINGS.clear()\n"
    ended = run_mpi(2, HEAD + body + USE)
    assert ended.returncode == 0, ended.stderr
    assert "no memory is shared on this host" in ended.stderr
    assert "<shared>" not in ended.stdout


LIMITS = {
    "ulimit -v": "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))",
    "ulimit -f": "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))",
}


@pytest.mark.parametrize("limit", LIMITS)
def test_the_largest_heaps_do_not_fit_but_smaller_ones_do(limit):
    first = "from mpi4py import MPI\n"  # some MPIs need more than that for themselves
    check(run_mpi(2, f"{HEAD}{first}{LIMITS[limit]}\n{USE}"), 2)


@pytest.mark.skipif(installed().name != "mpich", reason="one MPI will do")
def test_many_more_ranks_than_cores():
    check(run_mpi(33, HEAD + USE, timeout=120), 33)


def in_little_shm(job, megabytes):
    """Return a command that runs a job with its own small /dev/shm, or None."""
    mount = f"mount -t tmpfs -o size={megabytes}m none /dev/shm"
    inside = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    try:
        tried = subprocess.run([*inside, "true"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [*inside, *job] if tried.returncode == 0 else None


@pytest.mark.parametrize("memfd", [True, False])
def test_a_dev_shm_as_small_as_in_a_container(tmp_path, memfd):
    """64 MB, of which MPIs take most; without memfd all that is shared lies there."""
    script = tmp_path / "script.py"
    script.write_text(HEAD + ("" if memfd else "del os.memfd_create\n") + USE)
    ranks = 8 if memfd else 2
    job = in_little_shm(command(ranks, [sys.executable, str(script)]), 64)
    if job is None:
        pytest.skip("this user may not mount anything (unshare --mount)")
    ended = subprocess.run(
        job, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    check(ended, ranks)


@pytest.mark.parametrize("megabytes", [1, 3])
def test_a_dev_shm_that_is_too_small_for_a_window(tmp_path, megabytes):
    """Where memfd is missing as well. MPICH and Intel MPI would die of it by SIGBUS."""
    if installed().name != "openmpi":
        pytest.skip("the MPI itself needs more")
    script = tmp_path / "script.py"
    script.write_text(HEAD + "del os.memfd_create\n" + USE.replace("300_000", "3000"))
    job = in_little_shm(command(2, [sys.executable, str(script)]), megabytes)
    if job is None:
        pytest.skip("this user may not mount anything (unshare --mount)")
    variables = environment({"OMPI_MCA_btl": "self,tcp"})
    ended = subprocess.run(
        job, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
