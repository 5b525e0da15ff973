"""Ending the job, and the line that says why."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(script):
    return subprocess.run(
        [sys.executable, "-c", f"from collectives.ending import *\n{script}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize(
    ("given", "status"), [(1, 1), (7, 7), (255, 255), (0, 1), (256, 1), (-3, 1)]
)
def test_the_status_is_never_that_of_success(given, status):
    assert run(f"end_job({given})").returncode == status


def test_what_was_printed_is_not_lost():
    ended = run("print('before', end=''); end_job(3)")
    assert (ended.returncode, ended.stdout) == (3, "before")


def test_neither_exit_hooks_nor_handlers_hold_it_up():
    ended = run(
        "import atexit; atexit.register(lambda: print('too late'))\n"
        "try: end_job(3)\n"
        "except BaseException: print('caught')\n"
        "finally: print('finally')\n"
    )
    assert (ended.returncode, ended.stdout) == (3, "")


def test_from_another_thread_as_well():
    ended = run(
        "import threading, time\n"
        "threading.Thread(target=end_job, args=(4,)).start()\n"
        "time.sleep(60)\n"
    )
    assert ended.returncode == 4


def test_an_abort_that_gets_stuck_is_ended_by_an_alarm():
    ended = run(
        "import sys, time, types\n"
        "stuck = types.SimpleNamespace(Abort=lambda status: time.sleep(25))\n"
        "sys.modules['mpi4py.MPI'] = types.SimpleNamespace(\n"
        "    Is_initialized=lambda: True, Is_finalized=lambda: False,\n"
        "    COMM_WORLD=stuck)\n"
        "end_job(3)\n"
    )
    assert ended.returncode == -14  # SIGALRM


def test_a_line_is_written_in_one_piece():
    ended = run("say('one'); say('two')")
    assert ended.stderr == "one\ntwo\n"


@pytest.mark.parametrize("stream", ["sys.stderr.close()", "sys.stderr = None"])
def test_nowhere_to_write_is_no_reason_not_to_end(stream):
    ended = run(f"import sys; {stream}; say('unheard'); end_job(5)")
    assert ended.returncode == 5
