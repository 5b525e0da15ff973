"""Calls that go on while Python does something else.

`comm.start_all_reduce(x)` puts the call into the queue of a thread and returns a
`Handle`. The thread runs the calls in the order in which they were started, on a group
of its own, so that they never meet the blocking calls of the same communicator. It
makes progress whenever the interpreter lets go: NumPy's loops, I/O and MPI all do.

Where the MPI library does not allow two threads (a level below `multiple`), the call is
made at once, and the handle is done when it is returned.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from collectives import forks
from collectives.errors import CollectiveTimeoutError

R = TypeVar("R")


class Handle(Generic[R]):
    """A call under way; its arrays belong to it until it is done."""

    def __init__(self, name: str) -> None:
        """Be a call that has not ended; made by `start_…`."""
        self.name = name
        self.waited_for = False
        self._ended = threading.Event()
        self._result: R | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Tell, without waiting, whether the call has ended, well or not."""
        ended = self._ended.is_set()
        if ended and self._error is None:
            self.waited_for = True  # who has seen that it went well may forget it
        return ended

    def wait(self, timeout_s: float | None = None) -> R:
        """Return the result; raise what the call raised.

        Raises:
            CollectiveTimeoutError: the call has not ended within `timeout_s` seconds.
                It goes on; its own deadline is that of the communicator.
        """
        if not self._ended.is_set():
            forks.refuse()
        if not self._ended.wait(timeout_s):
            raise CollectiveTimeoutError(
                f"{self.name} has not ended within {timeout_s:g} s; it goes on"
            )
        self.waited_for = True
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def __str__(self) -> str:
        """Return the call's name, and the error that it raised."""
        error = self._error
        return self.name if error is None else f"{self.name} ({error!r})"

    def run(self, call: Callable[[], R]) -> None:
        """Make the call and keep what comes of it."""
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
        self._ended.set()


class Engine:
    """A thread that makes calls in the order in which they were started."""

    def __init__(self) -> None:
        """Start with nothing to do, and without a thread."""
        self._queue: queue.SimpleQueue[tuple[Handle[Any], Callable[[], Any]] | None]
        self._queue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._open: list[Handle[Any]] = []

    def submit(self, name: str, call: Callable[[], R]) -> Handle[R]:
        """Queue a call and return its handle."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="ringfold calls", daemon=True
            )
            self._thread.start()
        handle: Handle[R] = Handle(name)
        self._open = [one for one in self._open if not one.waited_for]
        self._open.append(handle)
        self._queue.put((handle, call))
        return handle

    def forgotten(self) -> list[str]:
        """Return the names of the calls that nobody has waited for."""
        return [str(handle) for handle in self._open if not handle.waited_for]

    def stop(self) -> None:
        """End the thread after the calls that are queued; may be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            handle, call = job
            handle.run(call)
