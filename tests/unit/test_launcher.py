"""What the launcher's variables are taken to mean."""

import sys
from pathlib import Path

import pytest

from collectives.launcher import disagreement, read_launch, refusal

OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-host-1@1",
    "PMIX_RANK": "2",
}
MPICH = {"PMI_SIZE": "4", "PMI_RANK": "2", "MPI_LOCALNRANKS": "2", "PMI_FD": "9"}
INTEL = {**MPICH, "I_MPI_HYDRA_UUID": "1d110000-1813"}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "2",
}
FLUX = {"FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "2", "PMI_SIZE": "4", "PMI_RANK": "2"}
PALS = {"PALS_RANKID": "2", "PALS_LOCAL_SIZE": "2", "PMI_SIZE": "4", "PMI_RANK": "2"}
# Open MPI's mpirun starts one daemon a host with srun; ranks inherit its variables.
OPEN_MPI_IN_SLURM = {
    **OPEN_MPI,
    **SLURM,
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_PROCID": "0",
}


@pytest.mark.parametrize(
    ("environ", "name", "local_size"),
    [
        (OPEN_MPI, "Open MPI's mpirun", 2),
        (MPICH, "MPICH's mpirun", 2),
        (INTEL, "Intel MPI's mpirun", 2),
        (SLURM, "Slurm's srun", None),
        (FLUX, "Flux", None),
        (PALS, "PALS", 2),
        (OPEN_MPI_IN_SLURM, "Open MPI's mpirun", 2),
        ({"PMI_SIZE": "4", "PMI_RANK": "2"}, "a PMI launcher", None),
        # srun --mpi=pmi2: the step's variables name the launcher better than PMI's.
        ({**SLURM, "PMI_SIZE": "4", "PMI_RANK": "2"}, "Slurm's srun", None),
    ],
)
def test_each_launcher_is_recognised(
    environ: dict[str, str], name: str, local_size: int | None
) -> None:
    facts = read_launch(environ)
    assert (facts.launcher, facts.size, facts.rank) == (name, 4, 2)
    assert facts.local_size == local_size
    assert facts.at_least == 4


@pytest.mark.parametrize(
    "environ",
    [
        {},
        # A batch script: variables of the job, none of a step.
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"},
        # An interactive shell, which Slurm starts as a step with a reserved number.
        {**SLURM, "SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"},
        # A batch script submitted from inside a step.
        {**SLURM, "SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "0"},
        {"OMPI_COMM_WORLD_SIZE": "four", "OMPI_COMM_WORLD_RANK": ""},
        {"PMI_SIZE": "4"},
    ],
)
def test_no_launcher(environ: dict[str, str]) -> None:
    facts = read_launch(environ)
    assert facts.launcher is None
    assert facts.at_least == 1
    assert disagreement(facts, 1) is None
    assert disagreement(facts, None) is None


def test_size_unknown_is_bounded_from_below() -> None:
    pmix = read_launch({"PMIX_NAMESPACE": "job", "PMIX_RANK": "2"})
    assert (pmix.size, pmix.at_least) == (None, 3)
    assert "started at least 3 ranks" in str(disagreement(pmix, 1, "Open MPI 5.0.11"))
    pals = read_launch({"PALS_RANKID": "0", "PALS_LOCAL_SIZE": "4"})
    assert (pals.size, pals.at_least) == (None, 4)


def test_variables_are_those_that_were_looked_at() -> None:
    facts = read_launch({**OPEN_MPI, **MPICH, "HOME": "/root"})
    assert facts.variables == {**OPEN_MPI, **MPICH}


def test_agreement_is_silent() -> None:
    assert disagreement(read_launch(OPEN_MPI), 4) is None
    # MPI's own word counts if it knows of several ranks: launchers can be nested.
    assert disagreement(read_launch(OPEN_MPI), 2) is None
    one = read_launch({"PMI_SIZE": "1", "PMI_RANK": "0"})
    assert disagreement(one, 1) is None


def test_foreign_mpirun_names_both_facts_and_the_cause() -> None:
    text = str(disagreement(read_launch(OPEN_MPI), 1, "Intel MPI 2021.18.1"))
    assert "the launcher (Open MPI's mpirun) started 4 ranks" in text
    assert "(Intel MPI 2021.18.1) sees 1" in text
    assert "mpirun belongs to another MPI than mpi4py's" in text


def test_same_mpi_twice_has_another_cause() -> None:
    text = str(disagreement(read_launch(OPEN_MPI), 1, "Open MPI 5.0.11"))
    assert "two installations of Open MPI" in text


def test_slurm_points_to_its_own_flag() -> None:
    assert "--mpi=pmi2" in str(disagreement(read_launch(SLURM), 1, "MPICH 5.0.2"))


@pytest.mark.parametrize(
    ("environ", "extra"), [(OPEN_MPI, "openmpi"), (MPICH, "mpich"), (INTEL, "impi")]
)
def test_no_mpi_at_all(environ: dict[str, str], extra: str) -> None:
    text = str(disagreement(read_launch(environ), None))
    assert "no MPI library could be loaded" in text
    assert f"'ringfold[{extra}]'" in text


def test_the_right_mpirun_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "my env"
    monkeypatch.setattr(sys, "prefix", str(prefix))
    facts = read_launch(MPICH)
    assert "the mpirun that came with" in str(disagreement(facts, 1, "Open MPI 5"))
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "mpirun").touch()
    # Quoted, since the text is there to be copied into a shell.
    assert f"use '{prefix}/bin/mpirun'" in str(disagreement(facts, 1, "Open MPI 5"))


PLAIN_MPICH = "MPICH Version: 5.0.2\nMPICH configure: --with-pm=hydra:gforker"


def test_mpich_would_abort_under_pmix() -> None:
    text = str(refusal(read_launch(OPEN_MPI), "MPICH 5.0.2", PLAIN_MPICH))
    assert "Open MPI's mpirun" in text
    assert "started 4 ranks" in text
    assert "PMIx" in text
    nameless = read_launch({"PMIX_NAMESPACE": "job"})
    assert "would abort" in str(refusal(nameless, "MPICH 5.0.2", PLAIN_MPICH))


@pytest.mark.parametrize(
    ("environ", "library", "details"),
    [
        (OPEN_MPI, "MPICH 5.0.2", PLAIN_MPICH + " --with-pmix=/usr"),
        (OPEN_MPI, "Intel MPI 2021.18.1", "Intel(R) MPI Library 2021.18.1"),
        (OPEN_MPI, "Open MPI 5.0.11", "Open MPI v5.0.11"),
        (MPICH, "MPICH 5.0.2", PLAIN_MPICH),
        ({}, "MPICH 5.0.2", PLAIN_MPICH),
    ],
)
def test_others_may_start(environ: dict[str, str], library: str, details: str) -> None:
    assert refusal(read_launch(environ), library, details) is None
