"""The end of every hang: after a while each rank prints its stacks and ends."""

import faulthandler
import os
import tempfile
import threading
import time
from collections.abc import Callable

# The first rank to go takes the job down; leave the others time to print as well.
GRACE_S = 2.0


class HangGuard:
    """Ends this process when `watch` was not called again for `timeout_s` seconds.

    A thread does it, so that the stacks of a rank come out in one piece with its
    number on each line. It cannot run while C code holds the interpreter's lock; for
    that there is faulthandler's own timer, a little later and without such comfort.
    """

    def __init__(
        self, timeout_s: float, label: str, awaited: Callable[[], list[int]]
    ) -> None:
        """Start watching; `awaited` names the ranks that this one waits for."""
        self._timeout_s, self._label, self._awaited = timeout_s, label, awaited
        self._stderr = os.dup(2)  # pytest is about to capture the original
        self._over = threading.Event()
        self.watch("start")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, doing: str) -> None:
        """Start counting anew, for what begins now."""
        self._doing = doing
        self._deadline = time.monotonic() + self._timeout_s
        faulthandler.dump_traceback_later(
            self._timeout_s + 2 * GRACE_S, exit=True, file=self._stderr
        )

    def stop(self) -> None:
        """Watch no longer."""
        self._over.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()
        os.close(self._stderr)

    def _run(self) -> None:
        while not self._over.is_set():
            left = self._deadline - time.monotonic()
            if left <= 0:
                self._report()
                time.sleep(GRACE_S)
                os._exit(1)
            self._over.wait(left)

    def _report(self) -> None:
        """Write the stacks of all threads, marked with the rank, in one piece."""
        awaited = self._awaited()
        what = f"waiting for ranks {awaited} to finish" if awaited else "stuck in"
        with tempfile.TemporaryFile() as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            stacks = file.read().decode(errors="replace")
        text = f"no end after {self._timeout_s:g} s: {what} {self._doing}\n{stacks}"
        lines = [f"[{self._label}] {line}\n" for line in text.splitlines()]
        os.write(self._stderr, "".join(lines).encode())
