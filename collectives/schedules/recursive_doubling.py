"""Recursive doubling: exchange everything, the fewest steps."""

from __future__ import annotations

from collectives.schedules.step import NOTHING, Schedule, Step, receive, send


def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange everything with the peer at distance 1, then 2, then 4 and so on.

    ::

        0 <-> 1   2 <-> 3      then      0 <-> 2   1 <-> 3      (4 ranks)

    log2 p steps, n bytes sent and reduced in each: the fewest steps, so the best for
    small arrays. With a size that is no power of two the first `2 * extra` ranks fold
    in pairs before and unfold after: floor(log2 p) + 2 steps. Both partners combine in
    rank order, so that all ranks get the same bits, NaN payloads included.
    """
    everything = (0, size)
    power = 1 << (size.bit_length() - 1)
    extra = size - power
    if rank < 2 * extra and rank % 2 == 0:
        return [
            send(rank + 1, everything),
            receive(rank + 1, everything),
        ]
    folded = rank < 2 * extra
    schedule = []
    if folded:
        schedule.append(Step(-1, NOTHING, rank - 1, everything, reduce=True))
    index = rank // 2 if folded else rank - extra
    distance = 1
    while distance < power:
        other = index ^ distance
        peer = 2 * other + 1 if other < extra else other + extra
        last = 2 * distance == power
        schedule.append(
            Step(
                peer, everything, peer, everything, True, last, lower_first=peer < rank
            )
        )
        distance *= 2
    if folded:
        schedule.append(send(rank - 1, everything))
    return schedule
