"""A schedule is the list of one rank's steps; a step is one exchange, in integers.

Words: p ranks, n bytes an array, a *block* is one rank's share (n/p), a *run* is
`(first, last)`, the blocks from `first` up to `last`, which is excluded. Blocks are
counted modulo p: in a run that goes on past the end, block p is block 0 again.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    forward: bool = False
    """Whether what is sent is what this very step receives, as it arrives."""


Schedule = list[Step]


def send(peer: int, run: Run) -> Step:
    """Return a step that only sends."""
    return Step(peer, run, -1, NOTHING, reduce=False)


def receive(peer: int, run: Run) -> Step:
    """Return a step that only receives, over what was there."""
    return Step(-1, NOTHING, peer, run, reduce=False)


def blocks_of(first: int, count: int, size: int) -> Run:
    """Return the run of `count` blocks from `first` on, counted modulo `size`."""
    return (first % size, first % size + count)


def in_places(schedule: Schedule, order: Sequence[int]) -> Schedule:
    """Return a schedule made for places as one for the ranks that have them.

    Args:
        schedule: what the rank at one place does; its runs are single blocks.
        order: the rank at each place; block and rank of a place go together.
    """
    size = len(order)
    if tuple(order) == tuple(range(size)):
        return schedule

    def rank(place: int) -> int:
        return order[place] if place >= 0 else -1

    def block(run: Run) -> Run:
        first, last = run
        return (order[first % size], order[first % size] + 1) if first < last else run

    return [
        step._replace(
            send_to=rank(step.send_to),
            send=block(step.send),
            receive_from=rank(step.receive_from),
            receive=block(step.receive),
        )
        for step in schedule
    ]
