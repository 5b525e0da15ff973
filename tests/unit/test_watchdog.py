"""The deadline of calls that block in C: it ends the process, with a dump."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

HEAD = """
import threading, time
from collectives import watchdog
from collectives.watchdog import Guarded
def stuck_here(seconds=30):
    time.sleep(seconds)
"""


def run(script):
    return subprocess.run(
        [sys.executable, "-c", HEAD + script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=25,
    )


def test_a_call_that_does_not_return_ends_the_process_with_all_stacks():
    ended = run(
        "threading.Thread(target=stuck_here, name='other', daemon=True).start()\n"
        "with Guarded(0.3, lambda: 'rank 0 is stuck in MPI_Bcast'): stuck_here()\n"
    )
    assert ended.returncode == 1
    first = ended.stderr.splitlines()[0]
    assert first.startswith("ringfold: rank 0 is stuck in MPI_Bcast; ending the job")
    assert ended.stderr.count("in stuck_here") == 2


def test_the_deadline_of_another_thread_counts_as_well():
    ended = run(
        "def body():\n"
        "    with Guarded(0.3, lambda: 'it is me'): stuck_here()\n"
        "threading.Thread(target=body, daemon=True).start()\n"
        "with Guarded(100, lambda: 'not me'): stuck_here()\n"
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("ringfold: it is me;")


def test_what_returns_in_time_is_left_alone():
    ended = run(
        "for _ in range(1000):\n"
        "    with Guarded(0.5, lambda: 'never'): pass\n"
        "time.sleep(1)\n"
        "print('fine')\n"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "fine\n", "")


def test_a_guard_inside_another_replaces_it_for_its_time():
    ended = run(
        "with Guarded(0.6, lambda: 'outer'):\n"
        "    with Guarded(100, lambda: 'inner'): stuck_here(1.5)\n"
        "    print('inner is over', flush=True)\n"
        "    stuck_here()\n"
    )
    assert ended.returncode == 1
    assert ended.stdout == "inner is over\n"
    assert ended.stderr.startswith("ringfold: outer;")


def test_an_error_inside_ends_the_guard():
    ended = run(
        "try:\n"
        "    with Guarded(0.5, lambda: 'never'): raise KeyError\n"
        "except KeyError: time.sleep(1)\n"
        "assert not watchdog._guards\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_suspended_process_does_not_wake_up_to_its_own_end():
    """Stopped for longer than the deadline, by itself, and continued by a child."""
    ended = run(
        "import os, signal, subprocess, sys\n"
        "with Guarded(3.5, lambda: 'woke up to its end'):\n"
        "    wake = f'sleep 5; kill -CONT {os.getpid()}'\n"
        "    child = subprocess.Popen(['sh', '-c', wake])\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    child.wait()\n"
        "    time.sleep(0.3)\n"
        "print('alive')\n"
    )
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
