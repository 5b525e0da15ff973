"""mpirun over ssh on several hosts, as docs/launching.md tells a user to do it."""

import json
from pathlib import Path

import pytest
from harness.hosts import hosts_up
from harness.launch import installed, run_mpi

ROOT = Path(__file__).parents[2]

WHERE = """
import json
import numpy as np
import collectives
comm = collectives.world()
where = comm.topology
seen = where.hosts, where.host_of, where.local_ranks, where.local_rank
total = comm.all_reduce(np.full(100_000, comm.rank + 1.0))
assert (total == comm.size * (comm.size + 1) / 2).all()
rows = comm.all_gather_object(seen)
if comm.rank == 0:
    print(json.dumps(rows), flush=True)
"""


@pytest.mark.parametrize("ranks", ["1,3", "2,1,2"])
def test_ranks_see_where_they_are(ranks):
    counts = [int(count) for count in ranks.split(",")]
    names = [f"node{host + 1}" for host in range(len(counts))]
    host_of = [host for host, count in enumerate(counts) for _ in range(count)]
    with hosts_up(len(counts)):
        ended = run_mpi(ranks, WHERE, timeout=60)
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(ended.stdout.splitlines()[-1])
    expected = []
    for rank, host in enumerate(host_of):
        local = [other for other, there in enumerate(host_of) if there == host]
        expected.append([names, host_of, local, local.index(rank)])
    assert rows == expected


@pytest.mark.parametrize("ranks", ["2,1"])
def test_every_algorithm_is_right_across_hosts(ranks):
    """A part of the matrix of tests/mpi, of what does not need one memory."""
    pytest_run = "import sys, pytest\nsys.exit(pytest.main(sys.argv[1:]))"
    what = [
        f"{ROOT}/tests/mpi/test_matrix.py",
        "-q",
        "-k",
        "few and float and not shared and not direct",
    ]
    if installed().name == "impi":  # refused, as it would crash
        refused = "test_a_few_of_each[reduce-native-float]"
        what += ["--deselect", f"tests/mpi/test_matrix.py::{refused}"]
    with hosts_up(len(ranks.split(","))):
        ended = run_mpi(
            ranks, pytest_run, timeout=150, args=[*what, f"--rootdir={ROOT}"]
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout
