"""The replicas of one process, run as threads that meet.

Between two meetings (merge_call, all_reduce, …) the replicas run one by one, in order:
the first up to its first meeting, then the second, and so on. With `concurrent` they
run at the same time. The first replica is the calling thread, and conducts: when it
comes to a meeting, or to its end, it lets the others come to theirs, and combines what
all have brought. So what replicas do together is always done by the thread that called
`run`, which is what MPI likes best.

When a replica raises, the others are stopped: where they are in a meeting they get
`Stopped`, which unwinds their stacks, and `run` raises the error as it was. What goes
wrong in a meeting is raised there by all of them.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from strategy.errors import MergeCallError

Combine = Callable[[list[Any]], Sequence[Any]]


class Stopped(BaseException):
    """Ends a replica because another has failed; the caller of run never sees it."""


class _Turn:
    """One replica: whether it may go on, what it brings and what it takes away."""

    def __init__(self) -> None:
        self.go, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.doing = ""  # the meeting that it is in, '' where it is in none
        self.given: Any = None
        self.taken: Any = None
        self.refused: BaseException | None = None  # what the meeting raises in it
        self.error: BaseException | None = None  # what ended it
        self.ended = False


class Meeting:
    """Where the replicas of one call of `run` wait for one another."""

    def __init__(
        self,
        count: int,
        entered: Callable[[], AbstractContextManager[None]],
        concurrent: bool,
    ) -> None:
        """Be the meeting place of `count` replicas, which `entered` makes one again.

        `concurrent` lets them run at the same time between meetings.
        """
        self._turns = [_Turn() for _ in range(count)]
        self._entered = entered
        self._concurrent = concurrent
        self._stopped = False

    def run(self, body: Callable[[int], Any]) -> list[Any]:
        """Return what `body(index)` returns for each replica."""
        first, others = self._turns[0], self._turns[1:]
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._work, index, turn, body),
                name=f"replica {index}",
                daemon=True,
            )
            for index, turn in enumerate(others, start=1)
        ]
        for thread in threads:
            thread.start()
        try:
            if self._concurrent:
                self._release()
            first.taken = body(0)
            first.ended = True
            self._let_come()
            if not all(turn.ended for turn in self._turns):
                raise self._apart()
        except Stopped:
            pass
        finally:
            self._stopped = True
            self._release()
            for thread in threads:
                thread.join()
        for turn in others:
            if turn.error is not None and not isinstance(turn.error, Stopped):
                raise turn.error
        return [turn.taken for turn in self._turns]

    def meet(self, index: int, doing: str, given: Any, combine: Combine) -> Any:
        """Bring `given`; return this replica's part of what `combine` makes of all.

        All must come to a meeting called `doing`, else each raises `MergeCallError`.
        """
        turn = self._turns[index]
        if self._stopped:
            raise Stopped
        turn.doing, turn.given = doing, given
        if index:
            turn.back.release()
            turn.go.acquire()
            if self._stopped:
                raise Stopped
        else:
            self._let_come()
            self._conduct(combine)
        refused, turn.refused = turn.refused, None
        if refused is not None:
            raise refused
        return turn.taken

    def _conduct(self, combine: Combine) -> None:
        """Combine what was brought; hand out the parts, or the error."""
        doing = [turn.doing for turn in self._turns]
        try:
            if set(doing) != {doing[0]}:
                raise self._apart()
            with self._entered():
                taken = combine([turn.given for turn in self._turns])
            for turn, part in zip(self._turns, taken, strict=True):
                turn.taken = part
        except BaseException as error:
            for turn in self._turns:
                turn.refused = error
        for turn in self._turns:
            turn.doing, turn.given = "", None
        if self._concurrent:
            self._release()

    def _work(self, index: int, turn: _Turn, body: Callable[[int], Any]) -> None:
        """Be the thread of one replica."""
        turn.go.acquire()
        try:
            if not self._stopped:
                turn.taken = body(index)
        except BaseException as error:
            turn.error = error
        turn.doing, turn.ended = "", True
        turn.back.release()

    def _let_come(self) -> None:
        """Wait until all others are in a meeting or ended; stop if one failed."""
        for turn in self._turns[1:]:
            if not turn.ended:
                if not self._concurrent:
                    turn.go.release()
                turn.back.acquire()
            if turn.error is not None:
                raise Stopped

    def _release(self) -> None:
        """Let the others go on."""
        for turn in self._turns[1:]:
            if not turn.ended:
                turn.go.release()

    def _apart(self) -> MergeCallError:
        where = (turn.doing or "its end" for turn in self._turns)
        places = (f"replica {index} is at {at}" for index, at in enumerate(where))
        return MergeCallError(
            "some replicas made a different number of merge_call() calls, or other "
            f"calls: {', '.join(places)}"
        )
