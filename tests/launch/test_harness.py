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


# One job for all ways in which a test can end, because starting a job takes a second.
MIXED = """
def test_passes(): pass

def test_fails_on_one():
    value = RANK
    assert value == 0

def test_fails_on_both():
    if RANK == 0: time.sleep(0.5)
    raise ValueError(RANK)

@pytest.fixture
def before(): assert RANK != 1

@pytest.fixture
def after():
    yield
    assert RANK != 0

def test_setup(before): pass

def test_teardown(after): pass

def test_skipped_on_one():
    if RANK == 1: pytest.skip("not here")

def test_skipped(): pytest.skip("nowhere")

@pytest.mark.ranks(3)
def test_three(): pass

@pytest.mark.ranks(2, 3)
def test_two(): pass

@pytest.mark.full
def test_full(): pass
"""


def run(folder, text, *options, group="mpi"):
    """Run one test file on two ranks, under a copy of this harness in `folder`."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "tests" / "harness", folder / "tests" / "harness")
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    path = folder / "tests" / group / "test_case.py"
    path.parent.mkdir()
    path.write_text(HEAD + text)
    ini = str(folder / "pyproject.toml")
    return run_mpi(2, PYTEST, args=[str(path), "-c", ini, "--color=no", *options])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    return run(tmp_path_factory.mktemp("mixed"), MIXED)


def test_success_is_reported_once(tmp_path):
    ended = run(tmp_path, "@pytest.mark.full\ndef test_it(): pass", "--full")
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("1 passed") == 1


def test_failures_are_reported_once(mixed):
    assert mixed.returncode != 0
    counts = "3 failed, 3 passed, 1 skipped, 2 deselected, 2 errors"
    assert mixed.stdout.count(counts) == 1, mixed.stdout


def test_a_failure_on_one_rank_names_it_and_shows_its_traceback(mixed):
    assert "ranks [1] of 2: assert 1 == 0" in mixed.stdout
    assert "assert value == 0" in mixed.stdout


def test_the_rank_that_failed_first_comes_first(mixed):
    assert "ranks [0, 1] of 2: ValueError: 1" in mixed.stdout


def test_setup_and_teardown_are_compared_as_well(mixed):
    assert "ranks [1] of 2: assert 1 != 1" in mixed.stdout
    assert "ranks [0] of 2: assert 0 != 0" in mixed.stdout


def test_a_skip_on_one_rank_is_a_failure(mixed):
    assert "passed on ranks [0], skipped on ranks [1]" in mixed.stdout


def test_a_hang_on_one_rank_ends_with_its_stack(tmp_path):
    ended = run(
        tmp_path,
        "def test_it():\n    while RANK == 1:\n        time.sleep(0.1)\n",
        "--hang-timeout=2",
    )
    assert ended.returncode != 0
    assert "[rank 1 of 2] no end after 2 s: stuck in" in ended.stderr
    assert "[rank 0 of 2] no end after 2 s: waiting for ranks [1]" in ended.stderr
    assert "in test_it" in ended.stderr


def test_a_hang_in_mpi_on_all_ranks_ends_with_their_stacks(tmp_path):
    ended = run(
        tmp_path,
        "def test_it():\n    from mpi4py import MPI\n    MPI.COMM_WORLD.recv()\n",
        "--hang-timeout=2",
    )
    assert ended.returncode != 0
    for rank in (0, 1):
        assert f"[rank {rank} of 2] no end after 2 s: stuck in" in ended.stderr


def test_different_collections_are_refused(tmp_path):
    ended = run(
        tmp_path, "if RANK == 1:\n    def test_extra(): pass\ndef test_it(): pass"
    )
    assert ended.returncode != 0
    assert "the ranks have not collected the same tests" in ended.stdout
    assert "test_extra" in ended.stdout


def test_a_file_that_one_rank_cannot_import_is_shown(tmp_path):
    ended = run(
        tmp_path, "if RANK == 1: raise ImportError('lost')\ndef test_it(): pass"
    )
    assert ended.returncode != 0
    assert "ImportError: lost" in ended.stdout


def test_unit_tests_refuse_mpirun(tmp_path):
    ended = run(tmp_path, "def test_it(): pass", group="unit")
    assert ended.returncode != 0
    assert "runs without mpirun; this is one of 2 ranks" in ended.stdout


def test_run_mpi_kills_what_does_not_end():
    script = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
    with pytest.raises(AssertionError, match=r"not ended after 5 s[^$]*begun"):
        run_mpi(2, script, timeout=5)
