"""Every collective on device arrays, by every way, with every dtype, op and layout."""

from collections import Counter

import pytest
from harness.arrays import KIND_OF
from harness.cases import segmented
from harness.device_cases import AUTO, HOST, ON_DEVICE, cases, impossible, run, ways

import collectives
from collectives.algorithms.on_device import ALONE, WAYS

pytestmark = pytest.mark.gpus

KINDS = tuple(dict.fromkeys(KIND_OF[name] for name in ON_DEVICE))
COMPARED: Counter[str] = Counter()
"""Results compared so far in this run, by way."""

# At least so many results are compared, of the few cases, where a way can be had at all.
FLOOR = 400


@pytest.fixture(scope="module")
def has_gpu(comm):
    return bool(comm.topology.with_gpu[comm.rank])


def check(comm, has_gpu, chosen):
    """Run cases on all ranks; compare results, bits and refusals between the ranks.

    Nothing is raised before the last: a rank that stopped early would leave the others
    in a call. Returns how many results were compared, by dtype.
    """
    complaints, told, compared = [], [], Counter()
    ranks = {name: segmented(comm, name) for name in {case.dtype for case in chosen}}
    for case in chosen:
        complaint, digest, refusal = run(ranks[case.dtype], case, has_gpu)
        complaints += [f"{case}: {complaint}"] if complaint else []
        told.append((digest, refusal))
        compared[case.dtype] += not refusal
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
        for way in (*WAYS, AUTO, HOST)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("collective", "way"), pairs())
def test_a_few_of_each(comm, has_gpu, collective, way, kind):
    if way not in ways(collective, comm.size):
        return
    dtypes = [name for name in ON_DEVICE if KIND_OF[name] == kind]
    chosen = [
        case
        for dtype in dtypes
        for case in cases(collective, way, dtype, full=False, size=comm.size)
        if not impossible(comm, case)
    ]
    compared = check(comm, has_gpu, chosen)
    COMPARED[way] += compared.total()
    missing = [dtype for dtype in dtypes if not compared[dtype]]
    assert way not in (AUTO, HOST) or not missing, f"no case had {missing}"


@pytest.mark.full
@pytest.mark.parametrize("dtype", ON_DEVICE)
@pytest.mark.parametrize(("collective", "way"), pairs())
def test_all(comm, has_gpu, collective, way, dtype):
    if way in ways(collective, comm.size):
        everything = cases(collective, way, dtype, full=True, size=comm.size)
        check(comm, has_gpu, [c for c in everything if not impossible(comm, c)])


def test_enough_results_were_compared(comm, request):
    """Comes last; says nothing in a run that was told to leave tests out."""
    told = request.config
    if told.option.keyword or any("::" in argument for argument in told.args):
        return
    refused = comm._group.gpus.refusals
    for way in (*WAYS, AUTO, HOST):
        if way in refused or (way == ALONE and comm.size > 1):
            continue
        assert COMPARED[way] >= FLOOR, f"{COMPARED[way]} results by {way}"
