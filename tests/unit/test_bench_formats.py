import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from collectives.bench.case import IN_PLACE, OUT_OF_PLACE, Form, Size
from collectives.bench.cases import CASES
from collectives.bench.facts import cores, rounding_note
from collectives.bench.formats import FORMATS, as_json
from collectives.bench.measure import (
    BUDGET_S,
    CALLS,
    REPETITIONS,
    plan_calls,
    plan_repetitions,
)
from collectives.bench.results import Facts, Measured, Row, ratios

FACTS = Facts(
    collective="all_reduce",
    dtype="float32",
    op="sum",
    root=-1,
    ranks=4,
    hosts=("one", "two"),
    host_of=(0, 0, 1, 1),
    processes=tuple(
        {"rank": rank, "pid": 100 + rank, "host": "one", "cores": "0-1"}
        for rank in range(4)
    ),
    versions={"ringfold": "0.1.0", "Python": "3.11.7", "NumPy": "2.4.6"},
    mpi="MPICH 5.0.2",
    mpi_library="MPICH Version: 5.0.2",
    topology="1 host x 2 ranks",
    command="ringfold bench all_reduce",
    date="2026-01-01T00:00:00+00:00",
    settings="all_reduce: nRank 4",
    method="median",
    buffers="mmap",
    memory=("fast", "slow"),
    notes=("sizes are rounded down",),
)


def measured(*microseconds, wrong=0, moved=8):
    """Every rank takes as long, except that rank 1 takes a tenth longer."""
    seconds = np.array([microseconds] * 4) * 1e-6 / 1.1
    seconds[1] *= 1.1
    return Measured(seconds, calls=20, wrong=wrong, moved=moved)


def row(algorithm, *microseconds, wrong=0, places=(OUT_OF_PLACE, IN_PLACE)):
    results = {place: measured(*microseconds, wrong=wrong) for place in places}
    return Row(
        CASES["all_reduce"],
        Size(4000, 1000),
        4,
        algorithm,
        None,
        results,
        adding=measured(3, 6, 9),
    )


ROWS = [row("mpi", 40, 20, 30), row("ring", 10, 10, 40)]


def test_a_repetition_takes_as_long_as_its_slowest_rank():
    figures = ROWS[0].places[IN_PLACE].time_us
    assert figures == pytest.approx({"min": 20, "median": 30, "max": 40})


def test_bandwidths_are_those_of_the_median():
    assert ROWS[0].algbw(IN_PLACE) == pytest.approx(4000 / 30e-6 / 1e9)
    assert ROWS[0].busbw(IN_PLACE) == pytest.approx(1.5 * 4000 / 30e-6 / 1e9)


def test_ratio_is_how_many_times_as_fast_as_the_baseline():
    by_both = {"min": 2, "median": 3}
    assert ratios(ROWS[0], ROWS[1]) == pytest.approx(by_both)
    outside = row("ring", 10, 10, 40, places=(OUT_OF_PLACE,))
    assert ratios(ROWS[0], outside) == pytest.approx(by_both)
    assert ratios(None, ROWS[1]) is None


def test_floor_is_the_share_of_the_additions_that_must_move():
    # Four ranks add three bytes each where eight must move together.
    assert ROWS[0].floor_us(IN_PLACE) == pytest.approx({"min": 2, "median": 4})
    assert ROWS[0].over_floor(IN_PLACE) == pytest.approx({"min": 10, "median": 7.5})


def test_where_nothing_must_move_there_is_no_floor():
    still = replace(ROWS[0], places={IN_PLACE: measured(5, moved=0)})
    assert still.floor_us(IN_PLACE) is still.over_floor(IN_PLACE) is None
    assert replace(ROWS[0], adding=None).floor_us(IN_PLACE) is None
    assert FORMATS["nccl"].rows(FACTS, [still]).split()[-5:-3] == ["N/A", "N/A"]


def test_nccl_table():
    form = FORMATS["nccl"]
    head = form.begin(FACTS)
    assert all(line.startswith("#") for line in head.splitlines())
    for text in (
        "Rank  3 Pid     103 on one cores 0-1",
        "MPICH Version",
        "mmap",
        "# Memory: fast",
    ):
        assert text in head
    titles = (
        "size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    )
    assert head.splitlines()[-2][1:].split() == [
        *titles.split(),
        *("min", "floor", "/floor", "vs", "mpi", "vs", "mpi", "algorithm"),
    ]
    cells = [line.split() for line in form.rows(FACTS, ROWS).splitlines()]
    place = ["30.00", "0.13", "0.20", "0"]
    assert cells[0][:5] == ["4000", "1000", "float32", "sum", "-1"]
    assert cells[0][5:] == [
        *(*place, *place),
        *("20.00", "4.00", "7.50", "1.00", "1.00", "mpi"),
    ]
    assert cells[1][-3:] == ["3.00", "2.00", "ring"]
    feet = form.end(FACTS, ROWS)
    assert "# Out of bounds values : 0 OK" in feet
    assert "# Memory afterwards    : slow" in feet
    assert "# Avg bus bandwidth    : 0.4\n" in feet
    assert "mpi 0.2, ring 0.6" in feet


def test_nccl_table_without_a_place_a_check_or_a_baseline():
    lone = row("ring", 10, places=(IN_PLACE,), wrong=None)
    cells = FORMATS["nccl"].rows(FACTS, [lone]).split()
    assert cells[5:9] == ["N/A"] * 4
    assert cells[-3:] == ["N/A", "N/A", "ring"]
    assert "Out of bounds values : N/A" in FORMATS["nccl"].end(FACTS, [lone])


def test_wrong_elements_fail_the_run():
    bad = row("ring", 10, wrong=3)
    assert "# Out of bounds values : 6 FAILED" in FORMATS["nccl"].end(FACTS, [bad])
    assert json.loads(as_json(FACTS, [bad]))["out_of_bounds"] == {
        "count": 6,
        "okay": False,
    }


def test_a_busy_machine_is_noted():
    busy = row("ring", 10, 30, 30)
    assert "in 1 of 2 rows the median is above 1.5 times" in FORMATS["nccl"].end(
        FACTS, [ROWS[0], busy]
    )
    assert "Note" not in FORMATS["nccl"].end(FACTS, [row("ring", 10, 11, 90)])


def test_columns_line_up():
    form = FORMATS["nccl"]
    size, places = Size(1 << 33, 1 << 31), {IN_PLACE: measured(5e6)}
    large = Row(CASES["all_reduce"], size, 4, "ring", None, places)
    titles = form.begin(FACTS).splitlines()[-2]
    ends = {
        line.rindex("ring") for line in form.rows(FACTS, [ROWS[1], large]).splitlines()
    }
    assert ends == {titles.index("algorithm")}


def test_json_has_the_documented_keys():
    document = json.loads(as_json(FACTS, ROWS))
    assert document["ringfold"] == "0.1.0"
    assert document["mpi"] == "MPICH 5.0.2"
    assert document["host_map"] == {"one": [0, 1], "two": [2, 3]}
    assert document["command"] == "ringfold bench all_reduce"
    assert document["memory"] == ["fast", "slow"]
    first = document["rows"][0]
    assert {
        key: first[key]
        for key in ("collective", "bytes", "count", "dtype", "op", "ranks", "hosts")
    } == {
        "collective": "all_reduce",
        "bytes": 4000,
        "count": 1000,
        "dtype": "float32",
        "op": "sum",
        "ranks": 4,
        "hosts": 2,
    }
    assert (first["algorithm"], first["registered"], first["touched"]) == (
        "mpi",
        False,
        False,
    )
    assert first["floor_us"] == pytest.approx({"min": 2, "median": 4})
    assert first["over_floor"] == pytest.approx({"min": 10, "median": 7.5})
    for figures in (first, first["out_of_place"]):
        assert figures["time_us"] == pytest.approx({"min": 20, "median": 30, "max": 40})
        assert figures["busbw_gbps"] == pytest.approx(1.5 * figures["algbw_gbps"])
        assert figures["wrong"] == 0


def test_json_of_a_row_that_exists_out_of_place_only():
    lone = row("ring", 10, places=(OUT_OF_PLACE,), wrong=None)
    first = json.loads(as_json(FACTS, [lone]))["rows"][0]
    assert first["place"] == OUT_OF_PLACE
    assert first["wrong"] is None
    assert first["time_us"]["median"] == pytest.approx(10)


def test_csv_has_one_line_per_size_algorithm_and_place():
    form = FORMATS["csv"]
    text = "\n".join([form.begin(FACTS), form.rows(FACTS, ROWS)])
    lines = list(csv.DictReader(text.splitlines()))
    assert [(line["algorithm"], line["place"]) for line in lines] == [
        (algorithm, place)
        for algorithm in ("mpi", "ring")
        for place in (OUT_OF_PLACE, IN_PLACE)
    ]
    assert float(lines[0]["time_us_median"]) == pytest.approx(30)
    assert float(lines[0]["over_floor_median"]) == pytest.approx(7.5)
    assert None not in lines[0] and "" not in lines[0].values()


SHARED = [
    ROWS[0],
    *(
        replace(row("ring", 10, 10, 40, places=(OUT_OF_PLACE,)), form=form)
        for form in (Form(True, True), Form(True, True, True))
    ),
]


def test_rows_of_one_algorithm_are_told_apart_by_the_form_of_their_arrays():
    lines = FORMATS["nccl"].rows(FACTS, SHARED).splitlines()
    assert lines[1].endswith("3.00    2.00  ring registered SHARED")
    assert lines[2].endswith("ring registered SHARED touched")
    feet = FORMATS["nccl"].end(FACTS, SHARED)
    assert "ring registered SHARED 0.6, ring registered SHARED touched 0.6" in feet
    found = [entry["touched"] for entry in json.loads(as_json(FACTS, SHARED))["rows"]]
    assert found == [False, False, True]
    assert "# Algorithm: ring registered SHARED, out" in FORMATS["osu"].end(
        FACTS, SHARED
    )


def test_osu_times_are_over_ranks():
    text = FORMATS["osu"].end(FACTS, ROWS).splitlines()
    start = text.index("# Algorithm: mpi, in place")
    size, mean, low, high, iterations, verdict = text[start + 2].split()
    assert (size, iterations, verdict) == ("4000", "60", "Pass")
    assert float(low) == pytest.approx(30 / 1.1, abs=0.01)
    assert float(high) == pytest.approx(30, abs=0.01)
    assert float(mean) == pytest.approx((3 * 30 / 1.1 + 30) / 4, abs=0.01)


def test_batches_fit_the_budget_between_their_bounds():
    assert [plan_calls(s) for s in (0.0, 10e-6, 60.0)] == [CALLS[1], CALLS[1], CALLS[0]]
    assert plan_calls(BUDGET_S / REPETITIONS[0] / 7.5) == 7
    assert plan_repetitions(0.0) == REPETITIONS[1]
    assert plan_repetitions(BUDGET_S / 10.5) == 10
    assert plan_repetitions(60.0) == REPETITIONS[0]


def test_rounding_is_said():
    assert rounding_note(CASES["all_reduce"], [8], [Size(8, 2)]) is None
    note = rounding_note(CASES["all_gather"], [8, 64], [Size(0, 0), Size(64, 8)])
    assert note == "sizes are rounded down to 16 bytes a rank: 8 -> 0"
    assert "one row" in rounding_note(CASES["barrier"], [0], [Size(0, 0)])


def test_cores_are_written_as_ranges():
    assert cores({5, 0, 1, 2, 7, 8}) == "0-2,5,7-8"
