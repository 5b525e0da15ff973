"""Circulant graphs: the fewest steps and the fewest bytes at once, for any size.

J. L. Traeff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms",
arXiv 2410.14234. For operations that commute, which all of ours do.
"""

from __future__ import annotations

from collectives.schedules.step import Schedule, Step, blocks_of


def circulant_reduce_scatter(rank: int, size: int) -> Schedule:
    """Halve the blocks that a rank is in charge of; rank r ends with block r.

    ::

        skip 2   0 --b2,b3--> 2   1 --b3,b0--> 3   2 --b0,b1--> 0   3 --b1,b2--> 1
        skip 1   0 --b1--> 1      1 --b2--> 2      2 --b3--> 3      3 --b0--> 0

    A rank that is in charge of the `s` blocks from its own on keeps the first
    `ceil(s/2)` and sends the rest that many ranks ahead. ceil(log2 p) steps, n(p-1)/p
    bytes sent and reduced per rank.
    """
    schedule = []
    for skip, blocks in _skips(size):
        ahead, behind = (rank + skip) % size, (rank - skip) % size
        schedule.append(
            Step(
                ahead,
                blocks_of(rank + skip, blocks, size),
                behind,
                blocks_of(rank, blocks, size),
                reduce=True,
                final=skip == 1,
            )
        )
    return schedule


def circulant_all_gather(rank: int, size: int) -> Schedule:
    """Double the blocks that a rank has: `circulant_reduce_scatter` run backwards.

    ceil(log2 p) steps, n(p-1)/p bytes sent per rank.
    """
    schedule = []
    for skip, blocks in reversed(_skips(size)):
        ahead, behind = (rank + skip) % size, (rank - skip) % size
        schedule.append(
            Step(
                behind,
                blocks_of(rank, blocks, size),
                ahead,
                blocks_of(rank + skip, blocks, size),
                reduce=False,
            )
        )
    return schedule


def circulant_all_reduce(rank: int, size: int) -> Schedule:
    """Reduce-scatter, then all-gather; 2 ceil(log2 p) steps, 2n(p-1)/p bytes sent."""
    return circulant_reduce_scatter(rank, size) + circulant_all_gather(rank, size)


def _skips(size: int) -> list[tuple[int, int]]:
    """Return `(skip, blocks)` of each step: 7 ranks give (4, 3), (2, 2), (1, 1)."""
    skips = []
    blocks = size
    while blocks > 1:
        skip = -(-blocks // 2)
        skips.append((skip, blocks - skip))
        blocks = skip
    return skips
