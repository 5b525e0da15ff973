"""From nothing to a communicator, in processes that no launcher started."""

import subprocess
import sys
from pathlib import Path

import pytest
from harness.launch import environment

ROOT = Path(__file__).parents[2]

HEAD = "import sys, numpy as np, collectives\n"
WITHOUT_MPI4PY = "import sys; sys.modules['mpi4py'] = None\n"
WITHOUT_LIBRARY = """
import sys
class Missing:
    def find_spec(self, name, path, target=None):
        if name == "mpi4py.MPI":
            raise RuntimeError("cannot load MPI library")
sys.meta_path.insert(0, Missing())
"""

EVERY_CALL = """
comm = collectives.world()
assert (comm.rank, comm.size) == (0, 1), comm
assert comm.topology.host_of == (0,)
x = np.array([[3, 1], [2, 4]])
assert (comm.scan(x, exclusive=True) == 0).all()
for name, algorithms in collectives.ALGORITHMS.items():
    if name == "exclusive_scan":
        continue
    for algorithm in algorithms:
        if algorithm == "native" and comm.mpi is None:
            continue
        y = getattr(comm, name)(x, algorithm=algorithm)
        assert (y == x).all() and y is not x, (name, algorithm, y)
        out = np.zeros_like(x)
        assert getattr(comm, name)(x, out=out) is out and (out == x).all()
assert comm.all_reduce(x, "mean").dtype == float
assert comm.all_reduce_many([x, 1.5])[1].item() == 1.5
assert comm.broadcast_object("text") == "text"
assert comm.all_gather_object("text") == ["text"]
comm.barrier()
assert collectives.all_reduce(2).item() == 2
comm.close()
print("all fine")
"""


def run(script, **variables):
    clean = {k: v for k, v in environment().items() if not k.startswith("RINGFOLD_")}
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**clean, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("before", "has_mpi"),
    [("", True), (WITHOUT_MPI4PY, False), (WITHOUT_LIBRARY, False)],
    ids=["with MPI", "without mpi4py", "without an MPI library"],
)
def test_a_world_of_one_can_do_everything(before, has_mpi):
    script = f"{EVERY_CALL}print(comm.topology.mpi is not None)"
    ended = run(before + HEAD + script)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    assert ended.stdout == f"all fine\n{has_mpi}\n"


def test_the_world_is_made_once():
    ended = run(
        HEAD + "from collectives import Options\n"
        "one, two = collectives.world(), collectives.world()\n"
        "assert one is two\n"
        "quick = collectives.world(options=Options(timeout_s=3))\n"
        "assert quick.options.timeout_s == 3\n"
        "assert collectives.world() is one and one.options.timeout_s == 600\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_variables_are_the_options_of_the_world():
    script = "print(collectives.world().options.timeout_s)"
    assert run(HEAD + script, RINGFOLD_TIMEOUT_S="42").stdout == "42.0\n"


def test_a_variable_that_is_no_option_is_an_error_at_once():
    ended = run(HEAD + "collectives.world()", RINGFOLD_TIMEOUT="42")
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("collectives.errors.InvalidArgumentError: RINGFOLD_TIMEOUT ")


def test_several_ranks_and_no_mpi_is_an_error():
    variables = {"PMI_SIZE": "4", "PMI_RANK": "1"}
    ended = run(WITHOUT_MPI4PY + HEAD + "collectives.world()", **variables)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("collectives.errors.LaunchError: ")
    assert "4 ranks" in last


def test_an_error_in_a_world_of_one_is_an_ordinary_one():
    ended = run(HEAD + "collectives.world()\nraise KeyError('mine')")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "KeyError: 'mine'"
    assert "ringfold" not in ended.stderr


def test_mpi_that_the_program_has_started_already_is_used():
    ended = run(
        "from mpi4py import MPI\n" + HEAD + "comm = collectives.world()\n"
        "assert comm.mpi == MPI.COMM_WORLD\n"
        "assert comm.all_reduce(1.0, algorithm='native').item() == 1\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
