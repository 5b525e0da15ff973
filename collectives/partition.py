"""Uneven blocks and segments: the only place that knows where one ends.

A **block** is one rank's share of an array, a **segment** the piece of a block that
is moved at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

Bounds = tuple[int, ...]


def even_bounds(count: int, blocks: int) -> Bounds:
    """Return `blocks + 1` bounds that cut `count` elements as evenly as integers allow.

    The first `count % blocks` blocks are one element longer. With fewer elements than
    blocks the last blocks are empty.
    """
    share, rest = divmod(count, blocks)
    return tuple(block * share + min(block, rest) for block in range(blocks + 1))


def bounds_of(lengths: Sequence[int]) -> Bounds:
    """Return the bounds of consecutive blocks with these lengths."""
    return (0, *accumulate(lengths))


def segments(start: int, stop: int, length: int) -> list[tuple[int, int]]:
    """Cut `[start, stop)` into pieces of at most `length`; an empty range has none."""
    return [(low, min(low + length, stop)) for low in range(start, stop, length)]
