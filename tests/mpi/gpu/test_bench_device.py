"""The benchmark with arrays on pretended devices."""

import json
from dataclasses import replace

import pytest

from collectives.bench import cases, driver
from collectives.bench.arguments import parse
from collectives.bench.case import IN_PLACE, OUT_OF_PLACE
from collectives.bench.cases import CUDA, cases_on
from collectives.bench.usage import Usage

pytestmark = [pytest.mark.gpus, pytest.mark.one_host]
QUICK = "--device cuda -b 4K -e 4K -n 2 -w 1 --repetitions 2"


def bench(comm, text):
    command = f"{text} {QUICK}"
    return driver.run(comm, parse(command.split()), "ringfold bench " + command)


def rows(capsys, comm, text):
    """Run and return the rows that rank 0 printed; None elsewhere."""
    assert bench(comm, text + " --format json") == 0
    out = capsys.readouterr().out
    return json.loads(out)["rows"] if out else None


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("collective", cases_on(CUDA))
def test_every_collective_is_right(comm, capsys, collective):
    if comm.size < cases_on(CUDA)[collective].fewest_ranks:
        assert comm.size == 1
        return
    found = rows(capsys, comm, f"{collective} -r {comm.size - 1}")
    if found is None:
        return
    by_name = {row["algorithm"]: row for row in found}
    assert {"copy", "host_copy", "auto", "staged"} <= by_name.keys()
    assert by_name["copy"]["wrong"] is None
    for name in ("auto", "staged"):
        assert by_name[name]["wrong"] == 0
    alone = comm._group.gpus.refusals.get("nccl") and comm.size > 1
    if not alone and cases_on(CUDA)[collective].raw:
        assert by_name["raw_nccl"]["wrong"] == 0


@pytest.mark.ranks(2)
def test_wrong_elements_are_found(comm, capsys, monkeypatch):
    right = cases.CASES["all_reduce"]

    def doubled(setup, send, receive):
        call = right.ours[OUT_OF_PLACE](setup, send, receive)
        return lambda: (call(), receive.__imul__(2))

    places = {OUT_OF_PLACE: doubled, IN_PLACE: right.ours[IN_PLACE]}
    monkeypatch.setitem(cases.CASES, "all_reduce", replace(right, ours=places))
    assert bench(comm, "all_reduce --algorithm auto") == 1


@pytest.mark.ranks(2)
def test_what_cannot_be_measured_is_said(comm):
    for text, why in {
        "all_reduce -d bfloat16": "bfloat16",
        "all_reduce --overlap": "--overlap",
        "barrier": "not for barrier",
        "all_reduce_many": "not for all_reduce_many",
    }.items():
        with pytest.raises(Usage, match=why):
            parse(f"{text} --device cuda".split())
    with pytest.raises(Usage, match="raw_nccl"):
        bench(comm, "all_reduce -d int16 --algorithm raw_nccl")
