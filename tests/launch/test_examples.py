"""The examples that call the collectives: right with 1, 2 and 4 ranks, or they fail."""

import re
from pathlib import Path

import pytest
from harness.launch import run_mpi

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
ELSEWHERE = {"train_digits.py"}  # test_digits.py

# What each prints, and an edit after which its result is wrong on several ranks.
PRINTS = {
    "conjugate_gradients.py": r"\d+ iterations to a relative residual of \d\.\de-1\d\n"
    r"\d+\.\d us an iteration, \d+\.\d of them in its two all-reduces",
    "heat_ring.py": r"from 1\.9\d+ to 1\.0\d+ between the extremes\nthe same bits",
    "k_means.py": r"\d+ rounds until no centre moved\n(cluster \d: .+\n){10}"
    r"every image is where the serial program puts it",
    "overlap.py": r"all-reduce +\d+\.\d\d\ncomputing +\d+\.\d\d\nboth +\d+\.\d\d\n"
    r"(hidden|nothing was hidden|one rank): .+\nthe sums are exact",
    "power_iteration.py": r"singular value 70\.1759643\d\d after \d+ iterations",
    "transpose_fft.py": r"largest relative difference from numpy.fft.fft2: \d\.\de",
}
BREAKS = {
    "conjugate_gradients.py": ("comm.exchange(pairs)", "pass"),
    "heat_ring.py": ("(left, None, padded[:1]", "(left, None, padded[-1:]"),
    "k_means.py": ("comm.all_reduce_many)", "lambda parts: parts)"),
    "overlap.py": ("return handle.wait(), power", "return handle.wait() + 1, power"),
    "power_iteration.py": ("comm.reduce_scatter(part)", "comm.scatter(part)"),
    "transpose_fft.py": ("rows.T.reshape(-1)", "rows.reshape(-1)"),
}


def text_of(name):
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", PRINTS)
def test_agrees_with_the_serial_result(name, ranks):
    ended = run_mpi(ranks, text_of(name), timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert re.search(PRINTS[name], ended.stdout), ended.stdout
    assert ended.stdout.count(f" on {ranks} rank(s)") == 1


@pytest.mark.parametrize("name", BREAKS)
def test_a_wrong_result_is_a_failure(name):
    right, wrong = BREAKS[name]
    assert text_of(name).count(right) == 1
    ended = run_mpi(2, text_of(name).replace(right, wrong), timeout=120)
    assert ended.returncode != 0, ended.stdout
    assert re.search("wrong|other clusters", ended.stderr), ended.stderr


def test_every_example_is_tested_and_in_the_table():
    there = {path.name for path in FOLDER.glob("*.py")}
    assert there == PRINTS.keys() | ELSEWHERE
    assert BREAKS.keys() == PRINTS.keys()
    listed = re.findall(r"^\| \[(.+?)\]\(\1\) \|", text_of("README.md"), re.MULTILINE)
    assert set(listed) == there
