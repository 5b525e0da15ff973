"""A chain of ranks through which segments flow: one is received while one is sent."""

from __future__ import annotations

from collectives.schedules.step import NOTHING, Schedule, Step, receive, send


def chain_broadcast(rank: int, size: int, root: int) -> Schedule:
    """Pass the root's array from rank to rank, segment by segment.

    ::

        root --s0--> +1 --s0--> +2 --s0--> +3
        root --s1--> +1 --s1--> +2               while s0 is still on its way

    One step, in which n bytes and p - 2 segments pass a rank: for large arrays the time
    of one transfer, whatever the number of ranks.
    """
    if size == 1:
        return []
    everything = (0, size)
    place = (rank - root) % size
    before, after = (rank - 1) % size, (rank + 1) % size
    if place == 0:
        return [send(after, everything)]
    if place == size - 1:
        return [receive(before, everything)]
    return [Step(after, everything, before, everything, reduce=False, forward=True)]


def chain_scan(rank: int, size: int) -> Schedule:
    """Pass on the running result from rank 0 upwards, each rank combining its own.

    One step, in which n bytes pass a rank, as in `chain_broadcast`. Strictly left to
    right: rank r ends with `((x0 op x1) op x2) … op xr`.
    """
    if size == 1:
        return []
    everything = (0, size)
    if rank == 0:
        return [send(1, everything)]
    final = rank == size - 1
    if final:
        return [Step(-1, NOTHING, rank - 1, everything, True, final)]
    return [Step(rank + 1, everything, rank - 1, everything, True, forward=True)]


def chain_all_reduce(rank: int, size: int) -> Schedule:
    """Scan up the chain, then pass the last rank's result around.

    2n bytes pass every rank, in the time of two transfers whatever the number of
    ranks. Strictly left to right: `((x0 op x1) op x2) …`.
    """
    return chain_scan(rank, size) + chain_broadcast(rank, size, size - 1)


def chain_shift(rank: int, size: int) -> Schedule:
    """Hand everything to the next rank, all at once; the last rank's goes nowhere."""
    everything = (0, size)
    if size == 1:
        return []
    if rank == 0:
        return [send(1, everything)]
    if rank == size - 1:
        return [receive(rank - 1, everything)]
    return [Step(rank + 1, everything, rank - 1, everything, reduce=False)]


def chain_reduce(rank: int, size: int, root: int) -> Schedule:
    """Scan up the chain; the last rank hands the result to the root.

    n bytes pass every rank. Strictly left to right: `((x0 op x1) op x2) …`.
    """
    schedule = chain_scan(rank, size)
    last, everything = size - 1, (0, size)
    if root != last and rank == last:
        schedule.append(send(root, everything))
    elif root != last and rank == root:
        schedule.append(receive(last, everything))
    return schedule
