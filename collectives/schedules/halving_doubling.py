"""Recursive halving, then doubling: few steps and few bytes where p is a power of two.

R. Thakur, R. Rabenseifner, W. Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
"""

from __future__ import annotations

from collectives.schedules.step import NOTHING, Run, Schedule, Step, receive, send


def halving_doubling(rank: int, size: int) -> Schedule:
    """Exchange halves, then quarters and so on, and gather them on the way back.

    ::

        0 <-> 2, 1 <-> 3 half of the array     then   0 <-> 1, 2 <-> 3 a quarter
        0 <-> 1, 2 <-> 3 the same quarters     then   0 <-> 2, 1 <-> 3 the halves

    2 log2 p steps, 2n(p-1)/p bytes sent and n(p-1)/p reduced per rank. With a size that
    is no power of two, ranks fold in pairs as in recursive doubling: two steps and n
    bytes more; `circulant` has no such loss.
    """
    power = 1 << (size.bit_length() - 1)
    extra = size - power
    everything = (0, size)
    if rank < 2 * extra and rank % 2 == 0:
        return [send(rank + 1, everything), receive(rank + 1, everything)]
    folded = rank < 2 * extra
    index = rank // 2 if folded else rank - extra

    def blocks(low: int, high: int) -> Run:
        """Return the run that belongs to the ranks that are left, from low to high."""
        return (low * size // power, high * size // power)

    halving: Schedule = []
    doubling: Schedule = []
    low, high = 0, power
    while high - low > 1:
        middle = (low + high) // 2
        distance = middle - low
        upper = index >= middle
        other = index - distance if upper else index + distance
        peer = 2 * other + 1 if other < extra else other + extra
        kept = (middle, high) if upper else (low, middle)
        given = (low, middle) if upper else (middle, high)
        final = high - low == 2
        halving.append(
            Step(peer, blocks(*given), peer, blocks(*kept), True, final, peer < rank)
        )
        doubling.insert(0, Step(peer, blocks(*kept), peer, blocks(*given), False))
        low, high = kept
    schedule = halving + doubling
    if folded:
        fold = Step(-1, NOTHING, rank - 1, everything, reduce=True)
        schedule = [fold, *schedule, send(rank - 1, everything)]
    return schedule
