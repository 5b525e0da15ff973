"""Several arrays seen as one, end to end in mind, and how that is cut into rounds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from collectives.partition import Bounds, bounds_of, even_bounds

LAYOUTS_KEPT = 128
PIECES_KEPT = 4096  # of one layout; a piece takes some 200 bytes


class Piece(NamedTuple):
    """A part of one array that goes through a slot in one round."""

    block: int
    """Which rank adds it up."""
    low: int
    high: int
    """Where it lies in the slot, in elements."""
    array: int
    """Which of the arrays it is a part of."""
    start: int
    stop: int
    """Where it lies in that array."""


class Round(NamedTuple):
    """The pieces of one round."""

    own: tuple[Piece, ...]
    """Of the block that this rank adds up."""
    others: tuple[Piece, ...]


class Layout:
    """The rounds in which arrays are added up, a block of them on each rank.

    Those of very large arrays are so many that they are made again in every call.
    """

    def __init__(
        self, sizes: tuple[int, ...], ranks: int, rank: int, length: int
    ) -> None:
        """See `layout`."""
        self._arrays = bounds_of(sizes)
        self._blocks = even_bounds(self._arrays[-1], ranks)
        self._ranks, self._rank, self._length = ranks, rank, length
        self._count = -(-self._blocks[1] // length)
        self._keeps = self._count * ranks + len(sizes) <= PIECES_KEPT
        self._made: dict[int, Round] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Round]:
        """Go through all rounds."""
        return map(self.__getitem__, range(self._count))

    def __getitem__(self, number: int) -> Round:
        made = self._made.get(number)
        if made is None:
            if len(self._made) > 1 and not self._keeps:  # a round and the next one
                self._made.clear()
            made = self._made[number] = self._make(number)
        return made

    def _make(self, number: int) -> Round:
        first, length, rank = number * self._length, self._length, self._rank
        of = [
            _pieces(self._arrays, self._blocks, block, first, length)
            for block in range(self._ranks)
        ]
        others = chain.from_iterable(of[:rank] + of[rank + 1 :])
        return Round(tuple(of[rank]), tuple(others))


@lru_cache(LAYOUTS_KEPT)
def layout(sizes: tuple[int, ...], ranks: int, rank: int, length: int) -> Layout:
    """Return the rounds in which arrays are added up.

    Args:
        sizes: elements of each array.
        ranks: how many blocks there are, as even as can be.
        rank: whose view it is.
        length: elements of a block that go in one round; block b has its place in a
            slot from `b * length` on.
    """
    return Layout(sizes, ranks, rank, length)


def _pieces(
    arrays: Bounds, blocks: Bounds, block: int, first: int, length: int
) -> list[Piece]:
    """Return the pieces of a block in the round that begins at its element `first`."""
    low = blocks[block] + first
    high = min(low + length, blocks[block + 1])
    shift = block * length - low
    if len(arrays) == 2:
        piece = Piece(block, low + shift, high + shift, 0, low, high)
        return [piece] if low < high else []
    found, place = [], bisect_right(arrays, low) - 1
    while place < len(arrays) - 1 and arrays[place] < high:
        begin, end = max(low, arrays[place]), min(high, arrays[place + 1])
        if begin < end:
            origin = arrays[place]
            found.append(
                Piece(
                    block,
                    begin + shift,
                    end + shift,
                    place,
                    begin - origin,
                    end - origin,
                )
            )
        place += 1
    return found
