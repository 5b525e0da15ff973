"""Whole pytest runs that go wrong on one rank: they end, and say which rank it was."""

import shutil
from pathlib import Path

import pytest
from harness.launch import run_mpi

ROOT = Path(__file__).parents[2]

HEAD = """
import os, time
import pytest
RANK = int(os.environ.get("PMI_RANK") or os.environ["PMIX_RANK"])
"""

PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.fixture
def run(tmp_path):
    """Return a function that runs one test file on two ranks, under this harness."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tests" / "harness", tmp_path / "tests" / "harness")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")

    def run(text, *options, folder="mpi"):
        path = tmp_path / "tests" / folder / "test_case.py"
        path.parent.mkdir()
        path.write_text(HEAD + text)
        ini = str(tmp_path / "pyproject.toml")
        return run_mpi(2, PYTEST, args=[str(path), "-c", ini, "--color=no", *options])

    return run


def test_success_is_reported_once(run):
    ended = run("def test_it(): pass")
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("1 passed") == 1


def test_a_failure_on_one_rank_names_it_and_shows_its_traceback(run):
    ended = run("def test_it():\n    value = RANK\n    assert value == 0")
    assert ended.returncode != 0
    assert ended.stdout.count("1 failed") == 1, ended.stdout
    assert "ranks [1] of 2: assert 1 == 0" in ended.stdout
    assert "assert value == 0" in ended.stdout


def test_the_rank_that_failed_first_comes_first(run):
    ended = run(
        "def test_it():\n    if RANK == 0: time.sleep(0.5)\n    raise ValueError(RANK)"
    )
    assert ended.returncode != 0
    assert "ranks [0, 1] of 2: ValueError: 1" in ended.stdout


def test_setup_and_teardown_are_compared_as_well(run):
    ended = run(
        "@pytest.fixture\ndef before():\n    assert RANK != 1\n"
        "@pytest.fixture\ndef after():\n    yield\n    assert RANK != 0\n"
        "def test_setup(before): pass\n"
        "def test_teardown(after): pass\n"
    )
    assert ended.returncode != 0
    assert "1 passed, 2 errors" in ended.stdout
    assert "ranks [1] of 2: assert 1 != 1" in ended.stdout
    assert "ranks [0] of 2: assert 0 != 0" in ended.stdout


def test_a_skip_on_one_rank_is_a_failure(run):
    ended = run("def test_it():\n    if RANK == 1: pytest.skip('not here')")
    assert ended.returncode != 0
    assert "passed on ranks [0], skipped on ranks [1]" in ended.stdout


def test_a_hang_on_one_rank_ends_with_its_stack(run):
    ended = run(
        "def test_it():\n    while RANK == 1:\n        time.sleep(0.1)\n",
        "--hang-timeout=2",
    )
    assert ended.returncode != 0
    assert "[rank 1 of 2] no end after 2 s: stuck in" in ended.stderr
    assert "[rank 0 of 2] no end after 2 s: waiting for ranks [1]" in ended.stderr
    assert "in test_it" in ended.stderr


def test_a_hang_in_mpi_on_all_ranks_ends_with_their_stacks(run):
    ended = run(
        "def test_it():\n    from mpi4py import MPI\n    MPI.COMM_WORLD.recv()\n",
        "--hang-timeout=2",
    )
    assert ended.returncode != 0
    for rank in (0, 1):
        assert f"[rank {rank} of 2] no end after 2 s: stuck in" in ended.stderr


def test_different_collections_are_refused(run):
    ended = run("if RANK == 1:\n    def test_extra(): pass\ndef test_it(): pass")
    assert ended.returncode != 0
    assert "the ranks have not collected the same tests" in ended.stdout
    assert "test_extra" in ended.stdout


def test_a_file_that_one_rank_cannot_import_is_shown(run):
    ended = run("if RANK == 1: raise ImportError('lost')\ndef test_it(): pass")
    assert ended.returncode != 0
    assert "ImportError: lost" in ended.stdout


def test_other_sizes_are_deselected_not_skipped(run):
    ended = run(
        "@pytest.mark.ranks(3)\ndef test_three(): pass\n"
        "@pytest.mark.ranks(2, 3)\ndef test_two(): pass\n"
        "@pytest.mark.full\ndef test_full(): pass\n"
    )
    assert ended.returncode == 0, ended.stdout
    assert "1 passed, 2 deselected" in ended.stdout


def test_full_selects_more(run):
    ended = run("@pytest.mark.full\ndef test_full(): pass", "--full")
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


def test_unit_tests_refuse_mpirun(run):
    ended = run("def test_it(): pass", folder="unit")
    assert ended.returncode != 0
    assert "runs without mpirun; this is one of 2 ranks" in ended.stdout


def test_run_mpi_kills_what_does_not_end():
    script = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
    with pytest.raises(AssertionError, match=r"not ended after 5 s[^$]*begun"):
        run_mpi(2, script, timeout=5)
