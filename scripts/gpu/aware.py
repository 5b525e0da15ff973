"""What the MPI says of device pointers, and what it does with them in a child.

The check fails where the two contradict each other: it says yes, and cannot.
"""

import argparse

from said import Report

import collectives
from collectives.gpu import proving


def main():
    """Ask both witnesses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", required=True)
    options = parser.parse_args()
    comm = collectives.world()
    report, mpi = Report(comm, options.report), comm.topology.mpi
    if mpi is None:
        report.check("CUDA-aware MPI", "there is no MPI")
        return
    word = proving.word(proving.library())
    proof = proving.probe(mpi.vendor, proving.library())
    bad = {name: why for name, why in proof.items() if why}
    report.check(
        "CUDA-aware MPI",
        "" if word or not bad else f"it says yes, but: {next(iter(bad.values()))}",
        says=word or "yes",
        does=proof,
        summary=proving.summary(proof),
    )


if __name__ == "__main__":
    main()
