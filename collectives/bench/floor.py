"""The memory-traffic floor: how fast a call could be if memory were all that counts.

Whatever the algorithm, each byte of input that anybody needs is loaded once and each
byte of a result is stored once, by some rank. What an algorithm moves beyond that, into
shared memory and out of it, is its own affair and is not counted. The speed of memory
is that at which all ranks together, at the same time, add private arrays of that size:
`a + b -> a` loads two bytes and stores one for each byte of `a`.

    floor = bytes that must move / (3 x ranks x size / time of such an addition)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.bench import device
from collectives.bench.case import IN_PLACE, Call, Case, Form, Size

__all__ = ["ADDED", "METHOD", "Adding", "adding", "moved"]

METHOD = (
    "what must be loaded and stored by all ranks, at the speed at which they add "
    "private arrays of that size at the same time; /floor is time over floor, medians"
)

# Bytes that an addition moves for each byte of one of its arrays.
ADDED = 3


def moved(case: Case, ranks: int, hosts: int, place: str, form: Form) -> float:
    """Return the bytes that must move, over the size: what all ranks load and store.

    It follows from what each rank must get. In place, a piece that is a rank's own
    input already lies where it belongs. A result that is shared is stored once a host;
    where it is touched, every rank loads it as well.
    """
    if not case.sized:
        return 0.0
    loaded, stored = set(), 0
    for rank in range(ranks):
        for block in case.blocks(ranks, rank, 0):
            if place == IN_PLACE and block.sources == (rank,):
                continue
            loaded |= {(source, block.part) for source in block.sources}
            stored += 1
    pieces = len(loaded) + (hosts if form.shared else stored)
    if form.touched:
        pieces += ranks
    return pieces / case.messages / (ranks if case.by_parts else 1)


@dataclass(frozen=True)
class Adding:
    """The addition of this rank's private arrays, timed in turn with the collectives.

    Bytes are added, whatever the dtype: the speed is the memory's.
    """

    call: Call
    send: NDArray[Any]
    messages: int = 1
    afresh: bool = False

    def rewrite(self) -> None:
        """Write the array that is added to, as its owner does."""
        self.send.fill(0)
        device.settle(self.send)


def adding(memory: tuple[NDArray[Any], NDArray[Any]], size: Size) -> Adding:
    """Bind the addition to the first bytes of two private arrays."""
    first, second = (array.view(np.uint8)[: size.nbytes] for array in memory)
    add = partial(np.add, first, second, out=first)
    if isinstance(first, np.ndarray):
        return Adding(add, first)

    def queue_and_wait() -> None:
        add()
        device.settle(first)

    return Adding(queue_and_wait, first)
