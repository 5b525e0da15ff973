"""A far rank dies, a host is cut off or slow: all report who is missing, and end."""

import pytest
from harness.hosts import hosts_up
from harness.launch import StillRunningError, installed, run_mpi

DEADLINE_S = 4.0
# From the deadline until a launcher has ended: ssh and TCP must find out that a host
# is cut off, which takes up to 13 s with the settings of scripts/hosts.sh.
ENDS_S = 45.0

HEAD = f"""
import os, signal, sys, time
import numpy as np
import collectives
from pathlib import Path
comm = collectives.world().with_options(timeout_s={DEADLINE_S})
folder = Path(sys.argv[1])
x = np.ones(1 << 20, np.float32)
"""

# Whatever ends a rank is written to a file: what a host that is cut off prints is lost.
LOOP = """
started = time.monotonic()
try:
    for call in range(10_000):
        comm.all_reduce(x, algorithm=ALGORITHM)
        if call == 4 and comm.rank == 0:
            (folder / "ready").touch()
        if call == 5:
            middle()
        started = time.monotonic()
except BaseException as error:
    waited = time.monotonic() - started
    path = folder / f"rank{comm.rank}"
    path.write_text(f"{waited} {type(error).__name__}: {error}")
    raise
"""


def reports(folder, ranks):
    """Return what each rank has written, having checked that it came in time."""
    texts = {}
    for rank in ranks:
        waited, _, texts[rank] = (folder / f"rank{rank}").read_text().partition(" ")
        assert float(waited) < DEADLINE_S + 3.0, (rank, waited, texts[rank])
    return texts


@pytest.mark.parametrize("algorithm", ["hierarchical", "native"])
def test_a_host_that_is_cut_off_in_a_call(tmp_path, algorithm):
    body = f"ALGORITHM = {algorithm!r}\ndef middle(): pass\n"
    with hosts_up(2, "1gbit") as hosts:
        with hosts.when(tmp_path / "ready", lambda: hosts("link", "2", "down")):
            ended = run_mpi(
                "2,2", HEAD + body + LOOP, timeout=ENDS_S, args=[str(tmp_path)]
            )
        left = hosts.ranks_left()
    assert ended.returncode != 0
    assert not left
    if algorithm != "native":
        told = reports(tmp_path, range(4))
        for rank in range(4):
            far = "rank 2, rank 3 on node2" if rank < 2 else "rank 0, rank 1 on node1"
            assert f"no answer from {far}: busy, dead, or cut off" in told[rank]
            assert told[rank].startswith("CollectiveTimeoutError"), told[rank]
    else:
        # The ranks of node1, who can be heard; in the call itself or just before it.
        assert ended.stderr.count("no answer from rank 2, rank 3 on node2") >= 2


def test_a_far_rank_that_is_busy_is_named_everywhere(tmp_path):
    body = "ALGORITHM = None\ndef middle():\n    if comm.rank == 2: time.sleep(1000)\n"
    with hosts_up(2) as hosts:
        ended = run_mpi("1,2", HEAD + body + LOOP, timeout=ENDS_S, args=[str(tmp_path)])
        left = hosts.ranks_left()
    assert ended.returncode != 0
    assert not left
    for text in reports(tmp_path, (0, 1)).values():
        assert "rank 2 has been in user code for " in text
    assert ended.stderr.count("rank 2 has been in user code for") >= 2


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", ""),
        ("raise KeyError('boom')", "KeyError: 'boom'"),
        ("sys.exit(0)", "left"),
    ],
)
def test_a_far_rank_that_ends(tmp_path, ending, text):
    """All ranks on all hosts are gone in time, whether or not the launcher is."""
    body = f"ALGORITHM = None\ndef middle():\n    if comm.rank == 3: {ending}\n"
    left = ["never looked at"]

    def look():
        left[:] = hosts.ranks_left()

    with hosts_up(2) as hosts, hosts.when(tmp_path / "ready", look):
        try:
            ended = run_mpi(
                "2,2", HEAD + body + LOOP, timeout=ENDS_S, args=[str(tmp_path)]
            )
        except StillRunningError:
            # One time in ten mpirun of Open MPI 5.0 does not see that a far rank was
            # killed: it and its daemons then wait for each other, without any rank.
            if "SIGKILL" not in ending or installed().name != "openmpi":
                raise
        else:
            assert ended.returncode != 0, ended.stdout + ended.stderr
            assert text in ended.stderr
    assert not left


def test_a_slow_host_is_waited_for(tmp_path):
    """As long as data flow no deadline passes, however long the call takes."""
    body = """
x = np.full(1 << 23, comm.rank + 1, np.float32)
comm.with_options(timeout_s=60).barrier()
comm = comm.with_options(timeout_s=1)
started = time.monotonic()
y = comm.all_reduce(x)
assert time.monotonic() - started > 2, "the call was meant to outlast its deadline"
assert (y == 6).all()
print("right", flush=True)
"""
    with hosts_up(3, "1gbit") as hosts:
        hosts("link", "3", "100mbit")
        ended = run_mpi("1,1,1", HEAD + body, timeout=ENDS_S, args=[str(tmp_path)])
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("right") == 3
