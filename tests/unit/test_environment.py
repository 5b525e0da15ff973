"""The environment of a program that a rank starts, and that is no rank itself."""

import os

import pytest

from collectives.launcher import (
    OWNER,
    claim_rank,
    clean_environment,
    read_launch,
    refusal,
)

# What the three MPIs' launchers set (shortened), and what a person has set before.
RANKS = {
    "MPICH": {
        "HYDI_CONTROL_FD": "7",
        "MPI_LOCALNRANKS": "2",
        "MPI_LOCALRANKID": "0",
        "PMI_FD": "9",
        "PMI_RANK": "1",
        "PMI_SIZE": "2",
    },
    "Open MPI": {
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_FILE_LOCATION": "/tmp/ompi.32579/1/0",
        "PMIX_NAMESPACE": "prterun-laptop-32579@1",
        "PMIX_RANK": "1",
        "PMIX_SERVER_URI2": "prterun-laptop-32579@0.0;tcp4://127.0.0.1:36",
        "PRTE_LAUNCHED": "1",
    },
    "Intel MPI": {
        "HYDRA_BSTRAP_UPSTREAM_FD": "7",
        "I_MPI_HYDRA_UUID": "8d060000",
        "I_MPI_INFO_CORE": "0,1",
        "I_MPI_PIN_INFO": "0",
        "I_MPI_PIN_MAPPING": "2:0 0,1 1",
        "MPI_LOCALNRANKS": "2",
        "PMI_FD": "9",
        "PMI_RANK": "1",
        "PMI_SIZE": "2",
    },
    "Slurm": {
        "SLURM_PROCID": "1",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
    },
}
SETTINGS = {
    "PATH": "/usr/bin",
    "OMP_NUM_THREADS": "1",
    "OMPI_MCA_osc": "^ucx",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "I_MPI_PIN": "0",
    "I_MPI_PIN_DOMAIN": "core",
    "HYDRA_IFACE": "eth0",
    "FI_PROVIDER": "tcp",
    "SLURM_JOB_ID": "17",
    "RINGFOLD_TIMEOUT_S": "60",
}


@pytest.mark.parametrize("launcher", RANKS)
def test_what_makes_a_rank_is_taken_out_and_nothing_else(launcher):
    environ = {**RANKS[launcher], **SETTINGS, OWNER: "1"}
    assert read_launch(environ).rank == 1
    assert clean_environment(environ) == SETTINGS
    assert not read_launch(clean_environment(environ)).variables


def test_a_program_that_a_rank_has_started_is_told_so(monkeypatch):
    for name, value in RANKS["MPICH"].items():
        monkeypatch.setenv(name, value)
    facts = read_launch()
    monkeypatch.delenv(OWNER, raising=False)
    assert refusal(facts, "MPICH 5.0.2", "") is None
    monkeypatch.setenv(OWNER, "")  # so that what claim_rank() sets is taken back
    claim_rank()
    assert os.environ[OWNER] == str(os.getpid())
    assert refusal(facts, "MPICH 5.0.2", "") is None, "the rank itself"
    monkeypatch.setenv(OWNER, "1")
    text = refusal(facts, "MPICH 5.0.2", "")
    assert text is not None
    assert text.startswith("this program was started by rank 1 (process 1) and is no")
    assert refusal(read_launch(SETTINGS), "MPICH 5.0.2", "") is None


def test_a_process_without_a_launcher_claims_nothing(monkeypatch):
    for name in {*os.environ} - {*clean_environment()}:
        monkeypatch.delenv(name)
    claim_rank()
    assert OWNER not in os.environ
