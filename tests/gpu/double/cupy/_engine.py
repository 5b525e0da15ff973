"""Streams as real queues: what is submitted runs when somebody waits, and no sooner.

A piece of work names the memory it reads and writes. Each carries a vector clock,
which says what is known to come before it: what is earlier on its stream, what events
its stream has waited for, and what the host had waited for when it was submitted. Two
pieces that touch the same memory, one of them writing, without one coming before the
other are a race, whether or not the double happened to run them in a good order.

Nothing runs by itself: whoever waits for one stream drives it, and the others only as
far as it depends on them, or when it is stuck on peers.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from cupy._misuse import Misuse

LEGACY, PER_THREAD = 0, 2
POLL_S = 0.00005

Span = tuple[int, int]
"""Addresses: the first, and the one after the last."""

LOCK = threading.RLock()
PID = os.getpid()


class Work:
    """A kernel, a copy, or a call of NCCL, in its place on a stream."""

    __slots__ = (
        "after",
        "clock",
        "done",
        "queue",
        "reads",
        "run",
        "seq",
        "what",
        "writes",
    )

    def __init__(
        self,
        what: str,
        run: Callable[[], object],
        reads: Sequence[Span],
        writes: Sequence[Span],
    ) -> None:
        self.what, self.run, self.reads, self.writes = what, run, reads, writes
        self.done = False
        self.queue: Queue
        self.seq = 0
        self.clock: dict[Queue, int] = {}
        self.after: list[Work] = []

    def touches(self, span: Span) -> bool:
        return meet(self.reads, [span]) or meet(self.writes, [span])

    def __str__(self) -> str:
        return f"{self.what} on {self.queue}"


class Queue:
    """What one stream is to the device."""

    def __init__(self, device: int, ptr: int, blocking: bool) -> None:
        self.device, self.ptr, self.blocking = device, ptr, blocking
        self.seq = 0
        self.pending: deque[Work] = deque()
        self.clock: dict[Queue, int] = {}
        self.awaited: list[Work] = []

    def __str__(self) -> str:
        return f"stream {self.ptr} of device {self.device}"


QUEUES: dict[object, Queue] = {}
RECENT: list[Work] = []
"""Work that the host has not waited for, done or not."""
watchers: list[Callable[[Work], None]] = []
"""Who else looks at work that is submitted; may raise."""
_host: dict[Queue, int] = {}


def queue(device: int, ptr: int) -> Queue:
    """Return the queue of a stream handle; that of a default stream is made at once."""
    with LOCK:
        if ptr in (LEGACY, 1):
            key: object = (device, LEGACY)
        elif ptr == PER_THREAD:
            key = (device, PER_THREAD, threading.get_ident())
        else:
            key = ptr
        if key not in QUEUES:
            if ptr > PER_THREAD:
                raise Misuse(f"stream {ptr} is not one, or was destroyed")
            QUEUES[key] = Queue(device, LEGACY if ptr == 1 else ptr, blocking=True)
        return QUEUES[key]


def submit(
    target: Queue,
    what: str,
    run: Callable[[], object],
    reads: Iterable[Span] = (),
    writes: Iterable[Span] = (),
) -> Work:
    """Put work at the end of a stream; `run` returns False as long as it cannot end."""
    work = Work(what, run, _spans(reads), _spans(writes))
    with LOCK:
        _not_forked()
        clock = dict(_host)
        _merge(clock, target.clock)
        work.after = target.awaited
        target.awaited = []
        for other in _ordered_with(target):
            _merge(clock, other.clock)
            if other.pending:
                work.after.append(other.pending[-1])
        target.seq += 1
        clock[target] = target.seq
        work.queue, work.seq, work.clock = target, target.seq, clock
        _refuse_races(work)
        for watcher in watchers:
            watcher(work)
        target.clock = clock
        target.pending.append(work)
        RECENT.append(work)
    return work


def wait_event(target: Queue, work: Work) -> None:
    """Let what is submitted from now on come after `work`."""
    with LOCK:
        _merge(target.clock, work.clock)
        if not work.done:
            target.awaited.append(work)


def mark(target: Queue) -> Work:
    """Submit a piece that does nothing: what events are."""
    return submit(target, "an event", lambda: None)


def synchronize(work: Work) -> None:
    """Drive the device until `work` is done; the host then knows of it."""
    while True:
        with LOCK:
            _drive(work.queue)
            if not work.done:
                drive_all()
            if work.done:
                _learn(work)
                return
        time.sleep(POLL_S)


def query(work: Work) -> bool:
    """Tell whether `work` was done, and only then drive it on.

    So the first answer about something that has not run yet is always no.
    """
    with LOCK:
        was = work.done
        if was:
            _learn(work)
        else:
            _drive(work.queue)
            if not work.done:
                drive_all()
        return was


def destroy(ptr: int) -> None:
    """Forget a stream; what is pending on it is still done, some time."""
    with LOCK:
        dead = QUEUES.pop(ptr)
        prune()
        if dead.pending:
            QUEUES["destroyed", ptr] = dead
        elif not any(work.queue is dead for work in RECENT):
            for clock in (_host, *(other.clock for other in QUEUES.values())):
                clock.pop(dead, None)


def idle(target: Queue) -> bool:
    """Tell whether all that was submitted to a stream is known to be done."""
    with LOCK:
        last = target.pending[-1] if target.pending else None
        if last is not None:
            return query(last)
        _merge(_host, target.clock)
        return True


def drive_all() -> None:
    """Run whatever can run, on all streams."""
    for key, other in list(QUEUES.items()):
        _drive(other)
        if isinstance(key, tuple) and key[0] == "destroyed" and not other.pending:
            del QUEUES[key]


def unordered(span: Span) -> list[Work]:
    """Return the work on some memory that the host has not waited for."""
    with LOCK:
        prune()
        return [work for work in RECENT if work.touches(span)]


def unwritten(span: Span) -> list[Work]:
    """Return the work that is still to write to some memory."""
    return [w for w in unordered(span) if not w.done and meet(w.writes, [span])]


def check_host(address: int, size: int, *, writes: bool, who: str) -> None:
    """Object when the host touches memory that a stream may be using."""
    span = (address, address + size)
    for work in unordered(span):
        if meet(work.writes, [span]) or writes:
            verb = "writes to" if writes else "reads"
            raise Misuse(
                f"{who} {verb} {size} bytes at {address:#x}, and nobody has waited "
                f"for {work}"
            )


def comes_before(work: Work, target: Queue) -> bool:
    """Tell whether `work` is done before anything that is submitted to a stream now."""
    with LOCK:
        known = max(_host.get(work.queue, 0), target.clock.get(work.queue, 0))
        for other in _ordered_with(target):
            known = max(known, other.clock.get(work.queue, 0))
        return work.seq <= known


def cancel(works: Iterable[Work]) -> None:
    """End work that waits for peers, as an abort does; nothing is written."""
    with LOCK:
        for work in works:
            if not work.done:
                work.run = lambda: None


def _drive(target: Queue) -> None:
    while target.pending:
        work = target.pending[0]
        for earlier in work.after:
            if not earlier.done:
                _drive(earlier.queue)
            if not earlier.done:
                return
        if work.done:  # what came before it was driven from here, and drove this on
            continue
        try:
            if work.run() is False:
                return
        except BaseException:
            _end(work)
            raise
        _end(work)


def _end(work: Work) -> None:
    work.queue.pending.popleft()
    work.done, work.after = True, []
    work.run = _nothing


def _nothing() -> None:
    """What work that is over still has to do; lets go of its arrays."""


def _ordered_with(target: Queue) -> list[Queue]:
    """Return the streams that the default stream's rule orders before this one."""
    if not target.blocking:
        return []
    here = [q for q in QUEUES.values() if q.device == target.device and q.blocking]
    if target.ptr == LEGACY:
        return [other for other in here if other is not target]
    return [other for other in here if other.ptr == LEGACY]


def _refuse_races(work: Work) -> None:
    prune()
    for earlier in RECENT:
        if earlier.seq <= work.clock.get(earlier.queue, 0):
            continue
        both = meet(earlier.writes, work.writes)
        if both or meet(earlier.writes, work.reads) or meet(earlier.reads, work.writes):
            raise Misuse(f"{work} touches the memory of {earlier}, in no order")


def _learn(work: Work) -> None:
    _merge(_host, work.clock)


def prune() -> None:
    RECENT[:] = [work for work in RECENT if work.seq > _host.get(work.queue, 0)]


def _merge(clock: dict[Queue, int], other: dict[Queue, int]) -> None:
    for key, seq in other.items():
        if clock.get(key, 0) < seq:
            clock[key] = seq


def meet(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)


def _spans(spans: Iterable[Span]) -> list[Span]:
    return [span for span in spans if span[0] < span[1]]


def _not_forked() -> None:
    if os.getpid() != PID:
        raise Misuse("a forked process uses the devices of its parent")
