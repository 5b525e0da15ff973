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
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collectives.ending import end_job, say

TICK_S = 0.25

Describe = Callable[[], str]


class _Guard:
    __slots__ = ("describe", "left_s")

    def __init__(self, left_s: float, describe: Describe) -> None:
        self.left_s = left_s
        self.describe = describe


_guards: dict[int, _Guard] = {}
_thread: threading.Thread | None = None
_start_lock = threading.Lock()


@contextmanager
def guarded(timeout_s: float, describe: Describe) -> Iterator[None]:
    """End the job with `describe()` and a dump of all stacks after `timeout_s`.

    Only running time counts: a suspended process does not wake up to its own end.
    """
    if _thread is None:
        _start()
    key = threading.get_ident()
    outer = _guards.get(key)
    _guards[key] = _Guard(timeout_s, describe)
    try:
        yield
    finally:
        if outer is None:
            del _guards[key]
        else:
            _guards[key] = outer


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
