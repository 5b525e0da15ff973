"""Binomial trees: from or to a root in the fewest steps."""

from __future__ import annotations

from collectives.schedules.step import NOTHING, Schedule, Step, blocks_of, receive, send


def tree_broadcast(rank: int, size: int, root: int) -> Schedule:
    """Hand everything down a binomial tree whose root is `root`.

    ::

        root -> +4      root -> +2, +4 -> +6      root -> +1, +2 -> +3, …   (8 ranks)

    ceil(log2 p) steps, n bytes in each. Ranks are counted from the root on.
    """
    everything = (0, size)
    place = (rank - root) % size
    schedule = []
    distance = 1 << max(size - 1, 0).bit_length()
    while distance > 1:
        distance //= 2
        if place % (2 * distance) == 0 and place + distance < size:
            child = (rank + distance) % size
            schedule.append(send(child, everything))
        elif place % (2 * distance) == distance:
            parent = (rank - distance) % size
            schedule.append(receive(parent, everything))
    return schedule


def tree_reduce(rank: int, size: int, root: int) -> Schedule:
    """Add everything up a binomial tree: `tree_broadcast` run backwards.

    ceil(log2 p) steps, n bytes in each. Children are added in the order of their
    distance from the root, nearest first.
    """
    everything = (0, size)
    schedule = []
    for step in reversed(tree_broadcast(rank, size, root)):
        if step.send_to >= 0:
            child = step.send_to
            schedule.append(
                Step(-1, NOTHING, child, everything, True, lower_first=False)
            )
        else:
            parent = step.receive_from
            schedule.append(send(parent, everything))
    if rank == root and schedule:
        schedule[-1] = schedule[-1]._replace(final=True)
    return schedule


def tree_gather(rank: int, size: int, root: int) -> Schedule:
    """Collect every rank's block up a binomial tree.

    ceil(log2 p) steps; the root receives n(p-1)/p bytes, and a rank hands on what its
    part of the tree has. Ranks are counted from the root on, so that the blocks of a
    part are consecutive.
    """
    place = (rank - root) % size
    schedule: Schedule = []
    distance = 1
    while distance < size:
        if place % (2 * distance) == distance:
            count = min(distance, size - place)
            schedule.append(
                send((rank - distance) % size, blocks_of(rank, count, size))
            )
            break
        if place + distance < size:
            child = (rank + distance) % size
            count = min(distance, size - place - distance)
            schedule.append(receive(child, blocks_of(child, count, size)))
        distance *= 2
    return schedule


def tree_scatter(rank: int, size: int, root: int) -> Schedule:
    """Hand every rank its block down a binomial tree: `tree_gather` run backwards."""
    return [
        send(step.receive_from, step.receive)
        if step.receive_from >= 0
        else receive(step.send_to, step.send)
        for step in reversed(tree_gather(rank, size, root))
    ]
