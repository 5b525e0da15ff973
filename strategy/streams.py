"""The streams of the replicas of one process: one for each that has a GPU.

What a replica does on its GPU is queued on its own stream, after what had been queued
before `run`, and before what will be queued after it. Where replicas meet, one thread
acts for all, and then every GPU has the stream of its replica: so all that happens on a
GPU while `run` lasts happens in one order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import collectives
from strategy.placing import Place, on


class Streams:
    """A stream for each of several places that is a GPU; made when first needed."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = tuple(places)
        self._streams: list[Any] = []

    @contextmanager
    def replica(self, index: int) -> Iterator[None]:
        """Be the replica: its GPU and its stream are the current ones."""
        place = self.places[index]
        with on(place), ExitStack() as stack:
            if place is not None:
                stack.enter_context(_current(place, self._streams[index]))
            yield

    @contextmanager
    def meeting(self, entered: AbstractContextManager[Any]) -> Iterator[None]:
        """Act for all replicas: their streams are current, each for its GPU."""
        with entered, ExitStack() as stack:
            for place, stream in zip(self.places, self._streams, strict=True):
                if place is not None:
                    stack.enter_context(_current(place, stream))
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Begin after what the caller has queued; he goes on after all of it."""
        if not self._streams:
            self._streams = list(map(_new, self.places))
        cuda = collectives.gpu.cupy().cuda
        own = [
            (place, stream)
            for place, stream in zip(self.places, self._streams, strict=True)
            if place is not None
        ]
        for place, stream in own:
            with on(place):
                _after(stream, cuda.get_current_stream())
        try:
            yield
        finally:
            for place, stream in own:
                with on(place):
                    _after(cuda.get_current_stream(), stream)


def _new(place: Place) -> Any:
    if place is None:
        return None
    with on(place):
        return collectives.gpu.cupy().cuda.Stream(non_blocking=True)


def _after(later: Any, earlier: Any) -> None:
    """Let what will be queued on a stream wait for what is queued on another one."""
    event = collectives.gpu.cupy().cuda.Event(disable_timing=True)
    event.record(earlier)
    later.wait_event(event)


@contextmanager
def _current(place: int, stream: Any) -> Iterator[None]:
    """Make a stream the current one of its GPU, whichever GPU is the current one."""
    with on(place):
        stream.__enter__()
    try:
        yield
    finally:
        with on(place):  # CuPy takes the null stream to be that of the current GPU
            stream.__exit__(None, None, None)
