"""`ringfold doctor` as users start it: alone, under mpirun, under a foreign mpirun."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from harness.launch import environment, installed, run_mpi

DOCTOR = """
import sys
from collectives.cli import main
sys.exit(main(["doctor", *sys.argv[1:]]))
"""

# What the mpirun of another MPI gives to rank 0 and 1 of 4. MPICH would abort inside
# MPI_Init under PMIx; the others become worlds of one.
FOREIGN = {
    "mpich": {
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_RANK": "{rank}",
        "PMIX_NAMESPACE": "prterun-host-1@1",
        "PMIX_RANK": "{rank}",
    },
    "impi": {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "{rank}"},
    "openmpi": {"PMI_SIZE": "4", "PMI_RANK": "{rank}", "MPI_LOCALNRANKS": "4"},
}


def doctor(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the doctor without a launcher."""
    return subprocess.run(
        [sys.executable, "-m", "collectives", "doctor", *arguments],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def findings(text: str, check: str) -> list[dict[str, Any]]:
    """Return the findings of one check from the doctor's JSON."""
    return [found for found in json.loads(text)["findings"] if found["check"] == check]


def test_alone() -> None:
    done = doctor()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Ringfold ")
    assert "started without a launcher" in done.stdout


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_whole_job(ranks: int) -> None:
    done = run_mpi(ranks, DOCTOR, args=["--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)  # one object: only rank 0 prints
    assert report["status"] == 0
    assert [facts["launch"]["rank"] for facts in report["facts"]] == list(range(ranks))
    assert {facts["mpi"]["vendor"] for facts in report["facts"]} <= {
        "MPICH",
        "Open MPI",
        "Intel MPI",
    }
    (agreed,) = findings(done.stdout, "launch")
    assert agreed["level"] == "ok"
    (trial,) = findings(done.stdout, "trial")
    assert trial["level"] == "ok"


def test_more_ranks_than_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    done = run_mpi(cores + 1, DOCTOR)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cores + 1} ranks share {cores} core" in done.stdout


def test_variables_that_differ() -> None:
    script = f"""
import os
ranks = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
rank = next(os.environ[name] for name in ranks if name in os.environ)
os.environ["OMP_NUM_THREADS"] = str(1 + int(rank))
{DOCTOR}
"""
    done = run_mpi(3, script, args=["--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    (finding,) = findings(done.stdout, "variables")
    assert finding["level"] == "warning"
    assert finding["what"] == (
        "OMP_NUM_THREADS differs: 1 on rank 0; 2 on rank 1; 3 on rank 2"
    )


def test_wrong_option_is_a_finding() -> None:
    done = run_mpi(2, DOCTOR, env={"RINGFOLD_TIMEOUT": "5"}, args=["--json"])
    assert done.returncode == 1
    (finding,) = findings(done.stdout, "variables")[:1]
    assert finding["level"] == "error"
    assert "RINGFOLD_TIMEOUT is not an option" in finding["what"]


def test_foreign_mpirun() -> None:
    variables = FOREIGN[installed().name]
    zero, one = (
        doctor(**{name: text.format(rank=rank) for name, text in variables.items()})
        for rank in (0, 1)
    )
    assert zero.returncode == one.returncode == 1
    text = " ".join(zero.stdout.split())
    assert "started 4 ranks" in text
    assert "mpirun belongs to another MPI than mpi4py's" in text
    assert f"{sys.prefix}/bin/mpirun" in zero.stdout
    assert one.stdout == ""


def test_unknown_argument_is_one_line_on_one_rank() -> None:
    done = run_mpi(2, DOCTOR, args=["--jsno"])
    assert done.returncode == 2
    assert done.stderr.count("unrecognized arguments: --jsno") == 1
