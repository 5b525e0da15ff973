"""A deadline for calls that block inside a C library and cannot be polled.

The MPI's own collectives and the start-up calls are such. A thread looks once in a
while at what is guarded; MPI releases the interpreter while it blocks, so the thread
runs even then. It cannot interrupt the call: when the deadline passes it prints where
every thread stands and ends the job.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from collections.abc import Callable

from collectives.ending import end_job, say

TICK_S = 0.25

Describe = Callable[[], str]


class Guarded:
    """End the job with `describe()` and a dump of all stacks after `timeout_s`.

    A context manager. Only running time counts: a suspended process does not wake up to
    its own end.
    """

    __slots__ = ("describe", "key", "left_s", "outer")

    def __init__(self, timeout_s: float, describe: Describe) -> None:
        self.left_s = timeout_s
        self.describe = describe

    def __enter__(self) -> None:
        """Start counting."""
        if _thread is None:
            _start()
        self.key = threading.get_ident()
        self.outer = _guards.get(self.key)
        _guards[self.key] = self

    def __exit__(self, *error: object) -> None:
        """Stop counting."""
        if self.outer is None:
            del _guards[self.key]
        else:
            _guards[self.key] = self.outer


_guards: dict[int, Guarded] = {}
_thread: threading.Thread | None = None
_start_lock = threading.Lock()


def _start() -> None:
    global _thread
    with _start_lock:
        if _thread is None:
            _thread = threading.Thread(target=_watch, name="ringfold", daemon=True)
            _thread.start()


def _watch() -> None:
    last = time.monotonic()
    while True:
        time.sleep(TICK_S)
        now = time.monotonic()
        passed, last = min(now - last, 4 * TICK_S), now
        for guard in list(_guards.values()):
            guard.left_s -= passed
            if guard.left_s <= 0:
                say(f"ringfold: {guard.describe()}; ending the job. All threads:")
                faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
                end_job(1)
            del guard  # nothing that it knows of may live longer for that
