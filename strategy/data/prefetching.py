"""A thread that makes elements ahead of their use.

The thread holds the elements before it and a queue, never what reads from the queue. So
a reader that is dropped half-way is finalized at once, says so, and the thread ends
after the element that it is making.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import Any

Answer = tuple[str, Any]


def prefetched(elements: Iterable[Any], ahead: int) -> Iterator[Any]:
    """Yield the same elements; up to `ahead` of them are made before they are wanted.

    What making an element raises comes out unchanged, after the elements before it.
    """
    ready: SimpleQueue[Answer] = SimpleQueue()
    places = threading.Semaphore(ahead)
    dropped = threading.Event()
    # A daemon: it may be waiting for a place when the interpreter ends.
    thread = threading.Thread(
        target=_make,
        args=(iter(elements), ready, places, dropped),
        name="ringfold-prefetch",
        daemon=True,
    )
    del elements
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            places.release()
            yield value
    finally:
        dropped.set()
        places.release()


def _make(
    elements: Iterator[Any],
    ready: SimpleQueue[Answer],
    places: threading.Semaphore,
    dropped: threading.Event,
) -> None:
    """Put elements into the queue until they end, or nobody wants them any more."""
    try:
        while True:
            places.acquire()
            if dropped.is_set():
                break
            ready.put(("element", next(elements)))
    except StopIteration:
        ready.put(("end", None))
    except BaseException as error:  # whatever it is, the reader shall have it
        ready.put(("error", error))
