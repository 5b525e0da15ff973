"""Every rank with every other, one pair at a time."""

from __future__ import annotations

from collectives.schedules.ring import ring_all_gather
from collectives.schedules.step import Schedule, Step, blocks_of


def pairwise_all_to_all(rank: int, size: int) -> Schedule:
    """Send block r to rank r; in step k with the ranks k ahead and k behind.

    p - 1 steps, every byte moved once. No two ranks send to the same one in a step.
    """
    return [
        Step(
            (rank + step) % size,
            blocks_of(rank + step, 1, size),
            (rank - step) % size,
            blocks_of(rank - step, 1, size),
            reduce=False,
        )
        for step in range(1, size)
    ]


def pairwise_reduce_scatter(rank: int, size: int) -> Schedule:
    """Send block r to rank r, which adds up what it gets; rank r ends with block r.

    ::

        step 1   0 --b1--> 1 --b2--> 2 --b3--> 3 --b0--> 0      (4 ranks)
        step 2   0 --b2--> 2 --b0--> 0    1 --b3--> 3 --b1--> 1
        step 3   0 --b3--> 3 --b2--> 2 --b1--> 1 --b0--> 0      rank r holds block r

    p - 1 steps, n(p-1)/p bytes sent and reduced per rank, as in a ring; but what is
    sent is always a rank's own contribution, never a partial sum.
    """
    return [
        step._replace(
            receive=blocks_of(rank, 1, size), reduce=True, final=number == size - 1
        )
        for number, step in enumerate(pairwise_all_to_all(rank, size), start=1)
    ]


def pairwise_all_reduce(rank: int, size: int) -> Schedule:
    """Reduce-scatter between pairs, then all-gather around the ring.

    2(p - 1) steps, 2n(p-1)/p bytes sent per rank. Only contributions and results
    travel: numbers of the caller's own type, however partial sums are kept.
    """
    return pairwise_reduce_scatter(rank, size) + ring_all_gather(rank, size)
