"""The streams of the replicas of one process.

On its GPU a replica works on the stream that is current for that GPU in the thread that
calls `run`; where replicas meet, that thread acts for all. So everything on a GPU
happens in one order, before, during and after `run`, and what happens on different GPUs
overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import collectives
from strategy.placing import Place, on


def current_streams(places: Sequence[Place]) -> list[Any]:
    """Return the stream that each GPU has in this thread, for other threads to use."""
    streams: list[Any] = []
    for place in places:
        if place is None:
            streams.append(None)
            continue
        cuda = collectives.gpu.cupy().cuda
        with on(place):
            stream = cuda.get_current_stream()
        if stream.ptr == cuda.runtime.streamPerThread:
            # In another thread it is another one. This one is the same in all of them,
            # and CUDA orders it with theirs.
            stream = cuda.ExternalStream(cuda.runtime.streamLegacy)
        streams.append(stream)
    return streams


@contextmanager
def working(place: Place, stream: Any) -> Iterator[None]:
    """Make a GPU and a stream on it the current ones; of the host, nothing."""
    with on(place):
        if place is None:
            yield
        else:
            with stream:
                yield
