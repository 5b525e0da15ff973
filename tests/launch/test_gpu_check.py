"""The script that checks a machine with a GPU, on pretended ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import gpus
from harness.launch import run_mpi

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.sh"


def check(folder, *arguments, **variables):
    """Run the script; return its exit status, what it printed and its document."""
    path = folder / "gpu_check.json"
    ended = subprocess.run(
        [str(SCRIPT), *arguments, "--json", str(path)],
        env={**os.environ, "PYTHON": sys.executable, **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )
    document = json.loads(path.read_text()) if path.exists() else None
    return ended.returncode, ended.stdout + ended.stderr, document


def states(document):
    return {part["name"]: part["status"] for part in document["parts"]}


def test_parts_are_run_and_told(tmp_path):
    names = "staged,CUDA-aware,doctor"
    status, text, document = check(tmp_path, "--double", "--only", names)
    assert status == 0, text
    assert document["double"] is True
    assert "double: pretended GPUs" in text
    assert set(states(document).values()) == {"passed"}
    ways = next(p for p in document["parts"] if p["name"] == "staged, 2 ranks")
    calls = next(c for c in ways["checks"] if c["check"] == "staged calls")
    assert calls["calls"] > 400 and not calls["refused"]
    order = next(c for c in ways["checks"] if "order" in c["check"])
    assert order["repetitions"] == 3
    aware = next(p for p in document["parts"] if p["name"] == "CUDA-aware MPI")
    assert aware["checks"][0]["says"].endswith("that it is not")
    assert not any(aware["checks"][0]["does"].values())  # it is the host's memory


def test_a_part_that_fails_does_not_stop_the_others(tmp_path):
    wrong = {"RINGFOLD_TIMEOUT_S": "soon"}
    status, _, document = check(tmp_path, "--double", "--only", "staged", **wrong)
    assert status == 1
    assert list(states(document).values()) == ["failed", "failed"]
    assert "RINGFOLD_TIMEOUT_S" in document["parts"][0]["output"]


WRONG = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent / "gpu")!r})
import collectives, ways
right = collectives.Communicator.all_reduce

def all_reduce(comm, x, *arguments, **options):
    total = right(comm, x, *arguments, **options)
    if comm.rank == 1 and getattr(total, "size", 0) > 1000 and total.dtype.kind == "f":
        total[1000] += 1
    return total

collectives.Communicator.all_reduce = all_reduce
sys.argv = ["ways", "staged", "--mib", "1", "--repetitions", "2"]
sys.argv += ["--report", {{report!r}}]
ways.main()
"""


def test_one_wrong_element_on_one_rank_is_found(tmp_path):
    report = tmp_path / "report"
    script = WRONG.replace("{report!r}", repr(str(report)))
    ended = run_mpi(2, script, timeout=100, env=gpus.variables("0"))
    assert ended.returncode == 0, ended.stderr
    checks = {c["check"]: c for c in map(json.loads, report.read_text().splitlines())}
    assert "2 elements are wrong" in checks["staged stream order"]["problem"]
    assert checks["staged float64"]["problem"].startswith("rank 1: all_reduce: 1 of")
    assert checks["staged min of NaN"]["ok"]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there may be a GPU")
def test_without_a_gpu_it_says_what_is_missing(tmp_path):
    status, text, document = check(tmp_path)
    assert (status, document) == (2, None)
    assert "pip install" in text or "no GPU" in text


@pytest.mark.full
def test_all_of_it(tmp_path):
    status, text, document = check(tmp_path, "--double")
    assert status == 0, text
    assert set(states(document).values()) <= {"passed", "skipped"}
