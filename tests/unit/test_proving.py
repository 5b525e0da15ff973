"""What the ranks make of each other's proofs."""

import pytest

from collectives.gpu import facts, proving

FINE = dict.fromkeys(proving.OPERATIONS, "")


def test_one_rank_that_refuses_refuses_for_all_and_is_named():
    refusing = FINE | {"Bcast": "MPI_Bcast crashed"}
    proof = proving.agreed([FINE, None, refusing, None])
    assert proof == FINE | {"Bcast": "MPI_Bcast crashed (rank 2)"}


@pytest.mark.parametrize(
    ("proof", "line"),
    [
        (FINE, "yes, proved"),
        (dict.fromkeys(FINE, "it says so"), "no: it says so"),
        (dict.fromkeys(FINE, "crashes") | {"Send": ""}, "proved for Send"),
    ],
)
def test_a_proof_is_told_in_a_line(proof, line):
    assert proving.summary(proof) == line


def test_a_process_without_mpi_proves_nothing():
    assert set(proving.prove("", "").values()) == {"there is no MPI"}


@pytest.mark.parametrize(
    ("unaware", "hosts", "reason"),
    [
        (("", ""), 1, ""),
        (("", "it says no"), 1, "it says no"),
        (("", ""), 2, "that is proved inside a host, not across"),
    ],
)
def test_who_may_be_asked_for_proof(unaware, hosts, reason):
    everyone = [
        facts.Own(0, f"GPU-{rank}", 22707, no) for rank, no in enumerate(unaware)
    ]
    refusals = facts.agreed(0, everyone, hosts).refusals
    assert refusals.get("cuda_aware", "") == reason
