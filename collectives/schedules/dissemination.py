"""Dissemination: news reaches everybody in the fewest rounds, for any size."""

from __future__ import annotations


def dissemination(rank: int, size: int) -> list[tuple[int, int]]:
    """Return `(send_to, receive_from)` of each round in which news reaches everybody.

    ceil(log2 p) rounds for any p; after round k a rank has heard of 2^(k+1) ranks.
    Hensgen, Finkel & Manber, Int. J. Parallel Program. 17 (1988).
    """
    rounds = []
    distance = 1
    while distance < size:
        rounds.append(((rank + distance) % size, (rank - distance) % size))
        distance *= 2
    return rounds
