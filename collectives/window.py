"""A group's window: memory of each member through which all of them work.

Every member carves its part from its own heap, so that the part lies near the rank that
writes it. There are two kinds of places in a part, two of each:

* *mail*, for arrays so small that they are copied before the ranks agree on the call:
  the hand-over that tells of the call delivers its data too. Used in turn by call.
* *slots*, for segments of larger arrays, used in turn by round, in whatever call.

Who writes a place for the second time must know that the others have read it before.
With two in turn the hand-over in between says so. The same goes for the words of the
board that tell something inside a call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from collectives.arena import Arena
from collectives.kernels import Array

MAIL_BYTES = 128 << 10
SLOT_BYTES = 512 << 10
ALL_SLOTS_BYTES = 8 << 20  # of one host: beyond that they leave the cache
LEAST_SLOT_BYTES = 64 << 10
VIEWS_KEPT = 1024
DTYPES_KEPT = 32


class Window:
    """The parts of all members, as seen by one of them."""

    def __init__(self, arena: Arena, places: list[int]) -> None:
        """Use the parts, by rank; each of `part_bytes(len(places))` bytes."""
        self.arena = arena
        self._slot_bytes = slot_bytes(len(places))
        self.mail_bytes = min(MAIL_BYTES, 2 * MAIL_BYTES // len(places))
        self._places = places
        self.turn = 0
        """Rounds so far: the next one uses slot `turn & 1`."""
        self.view = lru_cache(VIEWS_KEPT)(self._view)
        self.slots = lru_cache(DTYPES_KEPT)(self._slots)

    def _view(self, place: int, dtype: np.dtype[Any], count: int) -> Array:
        """Return an array of memory anywhere in the arena."""
        memory = self.arena.view(place, count * dtype.itemsize)
        array: Array = np.ndarray(count, dtype, memory)
        return array

    def mail(
        self, turn: int, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> list[Array]:
        """Return the places, by rank, for an array of at most `mail_bytes`."""
        count = int(np.prod(shape, dtype=np.int64))
        return [
            self._view(place + turn * MAIL_BYTES, dtype, count).reshape(shape)
            for place in self._places
        ]

    def length(self, itemsize: int) -> int:
        """Return how many elements a slot holds."""
        return self._slot_bytes // itemsize

    def _slots(self, dtype: np.dtype[Any]) -> tuple[list[Array], list[Array]]:
        """Return the slots of the two turns, by rank."""
        count, start = self.length(dtype.itemsize), 2 * MAIL_BYTES
        first, second = (
            [self._view(place + offset, dtype, count) for place in self._places]
            for offset in (start, start + self._slot_bytes)
        )
        return first, second

    def close(self) -> None:
        """Let go of the memory, so that the arena can be closed."""
        self.view.cache_clear()
        self.slots.cache_clear()


def slot_bytes(ranks: int) -> int:
    """Return the size of a slot in a window of so many ranks."""
    share = 1 << (ALL_SLOTS_BYTES // ranks).bit_length() - 1
    return min(SLOT_BYTES, max(share, LEAST_SLOT_BYTES))


def part_bytes(ranks: int) -> int:
    """Return the size of each member's part."""
    return 2 * (MAIL_BYTES + slot_bytes(ranks))
