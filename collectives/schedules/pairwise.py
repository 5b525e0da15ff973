"""Every rank with every other, one pair at a time."""

from __future__ import annotations

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
