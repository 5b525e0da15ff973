"""Around the ring: neighbours only, the fewest bytes."""

from __future__ import annotations

from collectives.schedules.linear import linear_gather
from collectives.schedules.step import Schedule, Step, blocks_of


def ring_reduce_scatter(rank: int, size: int) -> Schedule:
    """Pass each block once around the ring, adding to it; rank r ends with block r.

    ::

        step 0   0 --b3--> 1 --b0--> 2 --b1--> 3 --b2--> 0      (4 ranks)
        step 1   0 --b2--> 1 --b3--> 2 --b0--> 3 --b1--> 0
        step 2   0 --b1--> 1 --b2--> 2 --b3--> 3 --b0--> 0      rank r holds block r

    p - 1 steps, n(p-1)/p bytes sent and reduced per rank: the least possible.
    Patarasuk & Yuan, J. Parallel Distrib. Comput. 69 (2009).
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    return [
        Step(
            right,
            blocks_of(rank - 1 - step, 1, size),
            left,
            blocks_of(rank - 2 - step, 1, size),
            reduce=True,
            final=step == size - 2,
        )
        for step in range(size - 1)
    ]


def ring_all_gather(rank: int, size: int) -> Schedule:
    """Pass each rank's block once around the ring, until everybody has all of them.

    p - 1 steps, n(p-1)/p bytes sent per rank: the least possible. Neighbours only.
    """
    right, left = (rank + 1) % size, (rank - 1) % size
    return [
        Step(
            right,
            blocks_of(rank - step, 1, size),
            left,
            blocks_of(rank - 1 - step, 1, size),
            reduce=False,
        )
        for step in range(size - 1)
    ]


def ring_all_reduce(rank: int, size: int) -> Schedule:
    """Reduce-scatter, then all-gather, both around the ring.

    2(p - 1) steps, 2n(p-1)/p bytes sent per rank. Wins where bytes dominate; each
    element is added up in one place and copied, so that all ranks get the same bits.
    """
    return ring_reduce_scatter(rank, size) + ring_all_gather(rank, size)


def ring_reduce(rank: int, size: int, root: int) -> Schedule:
    """Reduce-scatter around the ring, then every rank hands its block to the root.

    2(p - 1) steps at the root; every rank sends at most n bytes.
    """
    return ring_reduce_scatter(rank, size) + linear_gather(rank, size, root)
