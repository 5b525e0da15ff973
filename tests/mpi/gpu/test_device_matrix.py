"""Every collective on device arrays, by every way, with every dtype, op and layout."""

from collections import Counter

import pytest
from harness.arrays import KIND_OF
from harness.cases import segmented
from harness.device_cases import (
    AUTO,
    HOST,
    ON_DEVICE,
    cases,
    impossible,
    refused,
    run,
    ways,
)

import collectives
from collectives.algorithms import HIERARCHICAL
from collectives.algorithms.on_device import ALONE, WAYS
from collectives.gpu.facts import STAGED

pytestmark = pytest.mark.gpus

KINDS = tuple(dict.fromkeys(KIND_OF[name] for name in ON_DEVICE))
COMPARED: Counter[str] = Counter()
"""Results compared so far in this run, by way."""

# So many results at least are compared, of the few cases, by any way that can be had.
FLOORS = {
    **{AUTO: 850, HOST: 570, STAGED: 560, ALONE: 560},
    **{"nccl": 325, "cuda_ipc": 560, "nccl_exchange": 280, HIERARCHICAL: 60},
}
FLOOR = 300


@pytest.fixture(scope="module")
def has_gpu(comm):
    return bool(comm.topology.with_gpu[comm.rank])


@pytest.fixture(scope="module")
def unavailable(comm, has_gpu):
    """Return the ways that cannot be had by these ranks at all.

    Where GPUs cannot do what is called hierarchical, the host's algorithm does it.
    """
    kind = "cupy" if has_gpu else "numpy"
    comm.all_reduce(pytest.importorskip(kind).ones(2))
    gpus = comm._group.gpus
    refused = set(WAYS) if gpus is None else set(gpus.refusals) & set(WAYS)
    return refused - {HIERARCHICAL}


def check(comm, has_gpu, unavailable, chosen):
    """Run cases on all ranks; compare results, bits and refusals between the ranks.

    Nothing is raised before the last: a rank that stopped early would leave the others
    in a call. Returns how many results were compared.
    """
    complaints, told, compared = [], [], 0
    ranks = {name: segmented(comm, name) for name in {case.dtype for case in chosen}}
    for case in chosen:
        complaint, digest, refusal = run(ranks[case.dtype], case, has_gpu)
        complaints += [f"{case}: {complaint}"] if complaint else []
        told.append((digest, refusal))
        way = case.algorithm
        wanted = way in unavailable or refused(way, case.dtype, case.op)
        if not wanted and refusal:
            complaints.append(f"{case}: was refused: {refusal}")
        elif wanted and not refusal and not complaint:
            complaints.append(f"{case}: was not refused")
        compared += not refusal
    everyone = comm.all_gather_object(told)
    for case, *theirs in zip(chosen, *everyone, strict=True):
        if len({digest for digest, _ in theirs if digest}) > 1:
            complaints.append(f"{case}: the ranks have different bits")
        refusals = {refusal for _, refusal in theirs}
        if len(refusals) > 1:
            complaints.append(f"{case}: the ranks refuse differently: {refusals}")
    assert not complaints, f"{len(complaints)} complaints: " + "\n".join(complaints)
    return compared


def pairs():
    return [
        (collective, way)
        for collective in collectives.ALGORITHMS
        for way in (*WAYS, STAGED, AUTO, HOST)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("collective", "way"), pairs())
def test_a_few_of_each(comm, has_gpu, unavailable, collective, way, kind):
    if way not in ways(collective, comm.size):
        return
    dtypes = [name for name in ON_DEVICE if KIND_OF[name] == kind]
    chosen = [
        case
        for dtype in dtypes
        for case in cases(collective, way, dtype, full=False, size=comm.size)
        if not impossible(comm, case)
    ]
    COMPARED[way] += check(comm, has_gpu, unavailable, chosen)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ON_DEVICE)
@pytest.mark.parametrize(("collective", "way"), pairs())
def test_all(comm, has_gpu, unavailable, collective, way, dtype):
    if way in ways(collective, comm.size):
        everything = cases(collective, way, dtype, full=True, size=comm.size)
        possible = [case for case in everything if not impossible(comm, case)]
        check(comm, has_gpu, unavailable, possible)


def test_enough_results_were_compared(comm, request, unavailable):
    """Comes last; says nothing in a run that was told to leave tests out."""
    told = request.config
    if told.option.keyword or any("::" in argument for argument in told.args):
        return
    for way in (*WAYS, STAGED, AUTO, HOST):
        if way in unavailable or (way == ALONE and comm.size > 1):
            continue
        floor = FLOORS.get(way, FLOOR)
        assert COMPARED[way] >= floor, f"{COMPARED[way]} results by {way}"
