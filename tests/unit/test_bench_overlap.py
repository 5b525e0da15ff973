import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from collectives.bench.case import BASELINE, IN_PLACE, Setup, Size, Staged
from collectives.bench.cases import CASES
from collectives.bench.measure import Run
from collectives.bench.overlap import computation, started
from collectives.bench.overlap_formats import (
    BLOCKING,
    COMPUTATION,
    FORMATS,
    OVERALL,
    STARTED,
    overlap_percent,
)
from collectives.bench.results import Facts, Measured, Row


class Recorder:
    """A communicator, ours or MPI's, that writes down what is called."""

    def __init__(self):
        self.calls = []

    def all_reduce(self, *arguments, **keywords):
        self.calls.append(("all_reduce", arguments, keywords))

    def start_all_reduce(self, *arguments, **keywords):
        self.calls.append(("start_all_reduce", arguments, keywords))
        return SimpleNamespace(wait=lambda: self.calls.append("wait"))

    def Allreduce(self, *arguments):
        self.calls.append(("Allreduce", arguments, {}))

    def Iallreduce(self, *arguments):
        self.calls.append(("Iallreduce", arguments, {}))
        return SimpleNamespace(Wait=lambda: self.calls.append("Wait"))

    def barrier(self):
        pass


def run_of(call, algorithm="auto"):
    array = np.zeros(1)
    setup = Setup(None, "sum", 0, algorithm, IN_PLACE)
    return Run(CASES["all_reduce"], setup, "float64", array, array, Staged(call))


def test_our_call_is_started_with_the_same_arguments_then_something_then_the_wait():
    comm = Recorder()
    run = run_of(partial(comm.all_reduce, 5, out=6))
    started(run, lambda: comm.calls.append("computed"))()
    assert comm.calls == [("start_all_reduce", (5,), {"out": 6}), "computed", "wait"]


def test_the_raw_call_is_started_by_its_name_with_an_i():
    mpi = Recorder()
    started(run_of(partial(mpi.Allreduce, 5, 6), BASELINE))()
    assert mpi.calls == [("Iallreduce", (5, 6), {}), "Wait"]


@pytest.mark.parametrize("call", [partial(Recorder().barrier), lambda: None])
def test_what_cannot_be_started_is_none(call):
    assert started(run_of(call)) is None


@pytest.mark.parametrize(
    ("pieces", "count", "elements"),
    [(0, 1, 1), (0.25, 1, 1 << 14), (1, 1, 1 << 16), (2.5, 3, 54613), (8, 8, 1 << 16)],
)
def test_a_computation_is_as_long_as_was_asked(monkeypatch, pieces, count, elements):
    lengths = []
    monkeypatch.setattr(np, "sqrt", lambda x, out: lengths.append(out.size))
    computation(pieces)()
    assert lengths == [elements] * count


FACTS = Facts(
    collective="all_reduce",
    dtype="float32",
    op="sum",
    root=-1,
    ranks=2,
    hosts=("one",),
    host_of=(0, 0),
    processes=tuple(
        {"rank": rank, "pid": 7, "host": "one", "cores": "0-1"} for rank in (0, 1)
    ),
    versions={"ringfold": "0.1.0"},
    mpi="MPICH 5.0.2",
    mpi_library="MPICH Version: 5.0.2",
    topology="1 host x 2 ranks",
    command="ringfold bench all_reduce --overlap",
    date="2026-01-01T00:00:00+00:00",
    settings="all_reduce: nRank 2",
    method="median",
    buffers="mmap",
    memory=("fast", "slow"),
    notes=(),
)


def row(overall, compute, blocking, begun, wrong=0):
    us = {OVERALL: overall, COMPUTATION: compute, BLOCKING: blocking, STARTED: begun}
    places = {
        thing: Measured(
            np.full((2, 3), time * 1e-6), 4, wrong if thing == OVERALL else None
        )
        for thing, time in us.items()
    }
    return Row(CASES["all_reduce"], Size(4096, 1024), 2, "auto", "ring", places)


@pytest.mark.parametrize(
    ("overall", "percent"), [(100, 100), (140, 20), (150, 0), (200, -100)]
)
def test_overlap_is_the_part_of_the_blocking_call_that_was_saved(overall, percent):
    assert overlap_percent(row(overall, 100, 50, 60)) == pytest.approx(percent)


def test_the_table_has_osus_columns_and_lines_up():
    form, rows = FORMATS["osu"], [row(140, 100, 50, 60), row(1.4e6, 1e6, 5e5, 6e5)]
    head = form.begin(FACTS)
    assert all(line.startswith("#") for line in head.splitlines())
    titles = head.splitlines()[-1]
    names = "Size Overall(us) Compute(us) Comm.(us) Started(us) Overlap(%) #wrong"
    assert titles[1:].split() == [*names.split(), "algorithm"]
    lines = form.rows(FACTS, rows).splitlines()
    cells = ["4096", "140.00", "100.00", "50.00", "60.00", "20.0", "0", "auto"]
    assert lines[0].split() == [*cells, "(ring)"]
    assert {line.index("auto") for line in lines} == {titles.index("algorithm")}
    assert "# Out of bounds values : 0 OK" in form.end(FACTS, rows)


def test_a_wrong_result_of_a_started_call_fails_the_run():
    rows = [row(140, 100, 50, 60, wrong=3)]
    assert "# Out of bounds values : 3 FAILED" in FORMATS["osu"].end(FACTS, rows)


def test_json_has_the_documented_keys():
    document = json.loads(FORMATS["json"].end(FACTS, [row(140, 100, 50, 60)]))
    (entry,) = document["rows"]
    for thing, us in zip(
        ("overall", "computation", "blocking", "started"),
        (140, 100, 50, 60),
        strict=True,
    ):
        times = entry[f"{thing}_us"]
        assert times == pytest.approx({"min": us, "median": us, "max": us})
    assert entry["overlap_percent"] == pytest.approx(20)
    assert (entry["wrong"], entry["calls"], entry["repetitions"]) == (0, 4, 3)
    assert document["out_of_bounds"] == {"count": 0, "okay": True}
