"""Every collective with every algorithm, dtype, op, layout, shape and place."""

from collections import Counter

import pytest
from harness.arrays import DTYPES, LAYOUTS
from harness.cases import CELLS, cases, ops_of, run, segmented

import collectives

PAIRS = [
    (collective, algorithm)
    for collective, algorithms in collectives.ALGORITHMS.items()
    for algorithm in algorithms
]


def check(comm, chosen):
    """Run cases on all ranks; compare every result, and its bits between the ranks.

    Nothing is raised before the last: a rank that stopped early would leave the others
    in a call. Returns how many cases ran, by layout.
    """
    complaints, digests, ran = [], [], Counter()
    ranks = {name: segmented(comm, name) for name in {case.dtype for case in chosen}}
    for case in chosen:
        told, digest = run(ranks[case.dtype], case)
        complaints += [f"{case}: {told}"] if told else []
        digests.append(digest)
        ran[case.layout] += 1
    everyone = comm.all_gather_object(digests)
    for case, *theirs in zip(chosen, *everyone, strict=True):
        if len({digest for digest in theirs if digest}) > 1:
            complaints.append(f"{case}: the ranks have different bits")
    assert not complaints, f"{len(complaints)} complaints: " + "\n".join(complaints)
    return ran


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_a_few_of_each(comm, collective, algorithm, kind):
    chosen = [
        case
        for dtype in DTYPES[kind]
        for case in cases(collective, algorithm, dtype, full=False, size=comm.size)
    ]
    ran = check(comm, chosen)
    missing = [layout for layout in LAYOUTS if not ran[layout]]
    assert not missing, f"no case of {collective}, {algorithm}, {kind} had {missing}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("collective", "algorithm", "dtype", "op"),
    [(*cell, op) for cell in CELLS for op in ops_of(cell[0], cell[2])],
)
def test_all(comm, collective, algorithm, dtype, op):
    everything = cases(collective, algorithm, dtype, full=True, size=comm.size)
    check(comm, [case for case in everything if case.op == op])
