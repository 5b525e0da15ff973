"""What every collective has to leave on a rank: blocks of what the ranks sent.

Each function takes the number of ranks, the rank that is asked about, and the root.
"""

from __future__ import annotations

from collectives.bench.case import Block, Blocks

__all__ = [
    "at_root",
    "combined",
    "combined_before",
    "combined_part",
    "combined_to_here",
    "from_left",
    "from_partner",
    "nothing",
    "part_of_each",
    "root_part",
    "roots",
    "whole_of_each",
]


def nothing(ranks: int, rank: int, root: int) -> list[Block]:
    """Give nobody anything."""
    return []


def combined(ranks: int, rank: int, root: int) -> list[Block]:
    """Give all ranks' arrays, combined."""
    return [Block(tuple(range(ranks)))]


def combined_part(ranks: int, rank: int, root: int) -> list[Block]:
    """Give this rank's part of all ranks' arrays, combined."""
    return [Block(tuple(range(ranks)), rank)]


def combined_to_here(ranks: int, rank: int, root: int) -> list[Block]:
    """Give the arrays of the ranks up to this one, combined."""
    return [Block(tuple(range(rank + 1)))]


def combined_before(ranks: int, rank: int, root: int) -> list[Block]:
    """Give the arrays of the ranks before this one, combined; rank 0 the identity."""
    return [Block(tuple(range(rank)))]


def roots(ranks: int, rank: int, root: int) -> list[Block]:
    """Give the root's array."""
    return [Block((root,))]


def root_part(ranks: int, rank: int, root: int) -> list[Block]:
    """Give this rank's part of the root's array."""
    return [Block((root,), rank)]


def whole_of_each(ranks: int, rank: int, root: int) -> list[Block]:
    """Give every rank's array, joined."""
    return [Block((source,)) for source in range(ranks)]


def part_of_each(ranks: int, rank: int, root: int) -> list[Block]:
    """Give this rank's part of every rank's array, joined."""
    return [Block((source,), rank) for source in range(ranks)]


def from_left(ranks: int, rank: int, root: int) -> list[Block]:
    """Give the array of the rank before this one, around a ring."""
    return [Block(((rank - 1) % ranks,))]


def from_partner(ranks: int, rank: int, root: int) -> list[Block]:
    """Give the other one's array, on ranks 0 and 1."""
    return [Block((1 - rank,))] if rank < 2 else []


def at_root(blocks: Blocks) -> Blocks:
    """Return what gives the root that result, and the others none."""

    def only_there(ranks: int, rank: int, root: int) -> list[Block]:
        return blocks(ranks, rank, root) if rank == root else []

    return only_there
