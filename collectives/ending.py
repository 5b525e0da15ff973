"""End the whole job, from any rank and any thread, within seconds."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

ABORT_S = 3
DRAIN_S = 0.2  # launchers drop what they have not read when a job is aborted
CLOSED = (OSError, ValueError, AttributeError)  # what a closed stream raises

LAST_WORDS: list[Callable[[], None]] = []
"""What is done before the job is ended; must be quick."""


def say(text: str) -> None:
    """Write one complete line to stderr, so that ranks do not cut up each other's."""
    with suppress(*CLOSED):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


_not_before = 0.0


def linger(seconds: float) -> None:
    """Do not end the job for so long: other ranks are about to say what they know."""
    global _not_before
    _not_before = time.monotonic() + seconds


def end_job(status: int) -> NoReturn:
    """Abort every rank of the job with `status` (at least 1); never returns.

    `MPI_Abort` itself can get stuck, for example when the link to a far host is cut, so
    a C-level alarm, which needs neither the interpreter nor MPI, kills us after that.
    """
    for speak in LAST_WORDS:
        with suppress(Exception):
            speak()
    for stream in (sys.stdout, sys.stderr):
        with suppress(*CLOSED):
            stream.flush()
    time.sleep(max(DRAIN_S, _not_before - time.monotonic()))
    status = status if 0 < status < 256 else 1
    _arm_alarm()
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and module.Is_initialized() and not module.Is_finalized():
        module.COMM_WORLD.Abort(status)
    os._exit(status)


def _arm_alarm() -> None:
    """Let SIGALRM kill this process in `ABORT_S` seconds."""
    if not hasattr(signal, "alarm"):
        return
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(ABORT_S)
