"""Several arrays seen as one, end to end in mind, and how that is cut into rounds."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

from collectives.partition import Bounds, bounds_of, even_bounds

LAYOUTS_KEPT = 256


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


@lru_cache(LAYOUTS_KEPT)
def layout(
    sizes: tuple[int, ...], ranks: int, rank: int, length: int
) -> tuple[Round, ...]:
    """Return the rounds in which arrays are added up, a block of them on each rank.

    Args:
        sizes: elements of each array.
        ranks: how many blocks there are, as even as can be.
        rank: whose view it is.
        length: elements of a block that go in one round; block b has its place in a
            slot from `b * length` on.
    """
    arrays = bounds_of(sizes)
    blocks = even_bounds(arrays[-1], ranks)
    longest = blocks[1] - blocks[0]
    rounds = []
    for first in range(0, longest, length):
        pieces = [
            piece
            for block in range(ranks)
            for piece in _pieces(arrays, blocks, block, first, length)
        ]
        rounds.append(
            Round(
                tuple(piece for piece in pieces if piece.block == rank),
                tuple(piece for piece in pieces if piece.block != rank),
            )
        )
    return tuple(rounds)


def _pieces(
    arrays: Bounds, blocks: Bounds, block: int, first: int, length: int
) -> list[Piece]:
    """Return the pieces of a block in the round that begins at its element `first`."""
    low = blocks[block] + first
    high = min(low + length, blocks[block + 1])
    shift = block * length - low
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
