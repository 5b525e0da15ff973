"""Who sends which blocks to whom, step by step, as plain integers.

A schedule is the list of one rank's steps. In each step a rank may send a run of
consecutive blocks to one peer and receive a run from one peer; what it receives it
either adds to its own (`reduce`) or keeps (`copy`). Nothing here knows arrays, MPI or
bytes, so that a schedule can be proved by a lockstep simulation for any size, and the
executor (algorithms/stepwise.py) writes segmentation, tags, deadlines and reduction
once for all of them.

Words: p ranks, n bytes an array, a *block* is one rank's share (n/p), a *run* is
`(first, last)` with `last` excluded.
"""

from __future__ import annotations

from typing import NamedTuple

Run = tuple[int, int]
NOTHING: Run = (0, 0)


class Step(NamedTuple):
    """One exchange of one rank. A peer of -1 means that nothing goes that way."""

    send_to: int
    send: Run
    receive_from: int
    receive: Run
    reduce: bool
    """Whether the received run is combined with this rank's own, or replaces it."""
    final: bool = False
    """Whether the run is complete after this step, added up over all ranks."""
    lower_first: bool = True
    """Combine as `received op own`, or as `own op received`."""


Schedule = list[Step]


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
            _block(rank - 1 - step, size),
            left,
            _block(rank - 2 - step, size),
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
            _block(rank - step, size),
            left,
            _block(rank - 1 - step, size),
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
    gather: Schedule = []
    if rank == root:
        gather = [
            Step(-1, NOTHING, peer, (peer, peer + 1), reduce=False)
            for peer in range(size)
            if peer != root
        ]
    elif size > 1:
        gather = [Step(root, (rank, rank + 1), -1, NOTHING, reduce=False)]
    return ring_reduce_scatter(rank, size) + gather


def recursive_doubling(rank: int, size: int) -> Schedule:
    """Exchange everything with the peer at distance 1, then 2, then 4 and so on.

    ::

        0 <-> 1   2 <-> 3      then      0 <-> 2   1 <-> 3      (4 ranks)

    ceil(log2 p) steps, n bytes sent and reduced in each: the fewest steps, so the best
    for small arrays. With a size that is no power of two the first `2 * extra` ranks
    fold in pairs before and unfold after (two steps more). Both partners combine in
    rank order, so that all ranks get the same bits, NaN payloads included.
    """
    everything = (0, size)
    power = 1 << (size.bit_length() - 1)
    extra = size - power
    if rank < 2 * extra and rank % 2 == 0:
        return [
            Step(rank + 1, everything, -1, NOTHING, reduce=False),
            Step(-1, NOTHING, rank + 1, everything, reduce=False),
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
        schedule.append(Step(rank - 1, everything, -1, NOTHING, reduce=False))
    return schedule


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
            schedule.append(Step(child, everything, -1, NOTHING, reduce=False))
        elif place % (2 * distance) == distance:
            parent = (rank - distance) % size
            schedule.append(Step(-1, NOTHING, parent, everything, reduce=False))
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
            schedule.append(Step(parent, everything, -1, NOTHING, reduce=False))
    if rank == root and schedule:
        schedule[-1] = schedule[-1]._replace(final=True)
    return schedule


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


def _block(index: int, size: int) -> Run:
    """Return the run of one block, counted modulo the number of blocks."""
    block = index % size
    return (block, block + 1)
