"""Every collective with every algorithm, dtype, op, layout, shape and place."""

from collections import Counter

import pytest
from harness.cases import CELLS, cases, ops_of, run, segmented


def check(comm, chosen):
    """Run cases on all ranks; compare every result, and its bits between the ranks.

    Nothing is raised before the last: a rank that stopped early would leave the others
    in a call.
    """
    complaints, digests = [], []
    for case in chosen:
        told, digest = run(segmented(comm, case.dtype), case)
        complaints += [f"{case}: {told}"] if told else []
        digests.append(digest)
    everyone = comm.all_gather_object(digests)
    for case, *theirs in zip(chosen, *everyone, strict=True):
        if len({digest for digest in theirs if digest}) > 1:
            complaints.append(f"{case}: the ranks have different bits")
    assert not complaints, f"{len(complaints)} complaints: " + "\n".join(complaints)


@pytest.mark.parametrize(("collective", "algorithm", "dtype"), CELLS)
def test_a_few_of_each(comm, collective, algorithm, dtype):
    cell = (collective, algorithm, dtype)
    chosen = list(cases(*cell, full=False, size=comm.size))
    ran = Counter((case.op, case.layout) for case in chosen)
    assert ran, f"{cell} has no cases"
    check(comm, chosen)


@pytest.mark.full
@pytest.mark.parametrize(
    ("collective", "algorithm", "dtype", "op"),
    [(*cell, op) for cell in CELLS for op in ops_of(cell[0], cell[2])],
)
def test_all(comm, collective, algorithm, dtype, op):
    everything = cases(collective, algorithm, dtype, full=True, size=comm.size)
    check(comm, [case for case in everything if case.op == op])
