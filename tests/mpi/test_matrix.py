"""Every collective with every algorithm, dtype, op, layout, shape and place."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from harness.arrays import DTYPES, LAYOUTS
from harness.cases import (
    CELLS,
    FLOORS,
    cases,
    has_result,
    impossible,
    ops_of,
    run,
    segmented,
)

import collectives

PAIRS = [
    (collective, algorithm)
    for collective, algorithms in collectives.ALGORITHMS.items()
    for algorithm in algorithms
]


COMPARED: Counter[bool] = Counter()
"""Results compared so far in this run; of the few cases, and of all (True)."""


def check(comm, chosen, full):
    """Run cases on all ranks; compare every result, and its bits between the ranks.

    Nothing is raised before the last: a rank that stopped early would leave the others
    in a call. Returns how many results were compared, by dtype and layout.
    """
    complaints, digests, compared = [], [], Counter()
    ranks = {name: segmented(comm, name) for name in {case.dtype for case in chosen}}
    for case in chosen:
        told, digest = run(ranks[case.dtype], case)
        complaints += [f"{case}: {told}"] if told else []
        digests.append(digest)
        compared[case.dtype, case.layout] += has_result(case)
    everyone = comm.all_gather_object(digests)
    for case, *theirs in zip(chosen, *everyone, strict=True):
        if len({digest for digest in theirs if digest}) > 1:
            complaints.append(f"{case}: the ranks have different bits")
    assert not complaints, f"{len(complaints)} complaints: " + "\n".join(complaints)
    COMPARED[full] += compared.total()
    return compared


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(("collective", "algorithm"), PAIRS)
def test_a_few_of_each(comm, collective, algorithm, kind):
    if why := impossible(comm, collective, algorithm):
        with pytest.raises(collectives.UnsupportedError, match=why):
            getattr(comm, collective)(np.ones(2), algorithm=algorithm)
        return
    chosen = [
        case
        for dtype in DTYPES[kind]
        for case in cases(collective, algorithm, dtype, full=False, size=comm.size)
    ]
    compared = check(comm, chosen, full=False)
    missing = [cell for cell in product(DTYPES[kind], LAYOUTS) if not compared[cell]]
    assert not missing, f"no case of {collective}, {algorithm} had {missing}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("collective", "algorithm", "dtype", "op"),
    [(*cell, op) for cell in CELLS for op in ops_of(cell[0], cell[2])],
)
def test_all(comm, collective, algorithm, dtype, op):
    everything = cases(collective, algorithm, dtype, full=True, size=comm.size)
    check(comm, [case for case in everything if case.op == op], full=True)


@pytest.mark.one_host
@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.full)])
def test_enough_results_were_compared(comm, request, full):
    """Comes last; says nothing in a run that was told to leave tests out."""
    told = request.config
    if told.option.keyword or any("::" in argument for argument in told.args):
        return
    floor = FLOORS[comm.topology.mpi.vendor][full]
    assert COMPARED[full] >= floor, f"{COMPARED[full]} results; wanted {floor}"
