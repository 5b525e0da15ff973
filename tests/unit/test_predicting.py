"""Predictions of machines that one does not have."""

import sys

import pytest

from collectives.cli import main
from collectives.costs import Costs, line
from collectives.moves import FORMULAS, SCHEDULES, Place
from collectives.tune.predicting import predict

NETWORK = line(2.0, 10.0)
COSTS = Costs({"call": ((0, 5.0),), "far_copy": NETWORK, "far_combine": NETWORK})


def predicted(ranks, nbytes):
    (row,) = predict("all_reduce", Place(ranks, 1), [nbytes], COSTS)
    return {one.algorithm: one for one in row}


def test_a_ring_takes_its_closed_form():
    p, n = 1000, 1 << 20
    us = 5 + 2 * (p - 1) * (2 + n / p / 1e4)
    assert predicted(p, n)["ring"].us == pytest.approx(us, rel=1e-3)


def test_bus_bandwidth_of_what_moves_least_nears_the_links():
    one = predicted(64, 1 << 30)["circulant"]
    assert 9.9 < one.busbw_gbs < 10.0


def test_the_fastest_comes_first_and_each_has_a_price():
    rows = list(predict("all_reduce", Place(64, 1), [8, 1 << 26], COSTS))
    for row in rows:
        assert [one.us for one in row] == sorted(one.us for one in row)
    assert rows[0][0].algorithm == "recursive_doubling"
    assert rows[1][0].algorithm in ("circulant", "halving_doubling")


def test_16384_ranks_are_printed_in_seconds(capsys):
    job = ["tune", "--predict", "--hosts", "2048", "--ranks-per-host", "8", "-e", "1M"]
    assert main(job) == 0
    printed = capsys.readouterr().out
    assert "2048 hosts x 8 ranks" in printed
    names = set(SCHEDULES["all_reduce"]) | set(FORMULAS["all_reduce"])
    for name in names - {"shared", "direct"}:  # of one host
        assert f" {name} " in printed


def test_a_network_may_be_given(capsys):
    times = []
    for rate in ("1", "10"):
        job = ["tune", "--predict", "--hosts", "4", "--link-gbs", rate, "-e", "8"]
        assert main([*job, "--latency-us", rate]) == 0
        first = capsys.readouterr().out.splitlines()[3]
        times.append(float(first.split()[2]))
    assert times[1] == pytest.approx(10 * times[0], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--hosts", "0"], "wanted 1 or more"),
        (["--table", "/no/such"], "--table /no/such: "),
        (["--collective", "barrier"], "barrier"),
        (["--table", __file__], "is not a table of ringfold tune"),
        (["-e", "much"], "'much' is not a size"),
    ],
)
def test_what_will_not_do_is_one_line(arguments, text, capsys):
    assert main(["tune", "--predict", *arguments]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_a_plot_without_matplotlib_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "plot.png"
    assert main(["tune", "--predict", "-e", "8", "--plot", str(path)]) == 2
    assert f"cannot draw --plot {path}" in capsys.readouterr().err


def test_a_plot_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    assert main(["tune", "--predict", "-e", "8K", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
