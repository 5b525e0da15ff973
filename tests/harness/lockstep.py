"""Run a schedule on all ranks at once, with terms instead of numbers.

A block's value on a rank is a *term*: a rank's own contribution, or a pair of terms
that were combined. So the simulation knows not only that every contribution is in a
result once, but also in which order and with which brackets; equal terms on two ranks
mean equal bits, whatever the numbers and the operation.

A send is over when its receiver has taken it, as with large messages: a schedule that
relies on messages being buffered deadlocks here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collectives.schedules import NOTHING, Run, Schedule, Step

Term = Any  # an int, or a pair of terms


@dataclass(frozen=True)
class Value:
    """What a rank holds of one block."""

    term: Term
    finished: bool = False
    """Whether a step marked `final` has been through it."""


Blocks = list[Value | None]
"""A rank's blocks; None for one that it has nothing of."""

Start = Callable[[int, int, int], Blocks]
"""`(rank, size, root)`: what a rank begins with."""


@dataclass
class Trace:
    """What a lockstep run did, by rank."""

    blocks: list[Blocks]
    rounds: int = 0
    """Rounds until all were done, where a step takes one round."""
    sent: list[int] = field(default_factory=list)
    """Blocks sent, added up over the steps."""
    reduced: list[int] = field(default_factory=list)
    """Blocks combined, added up over the steps."""


def everything(rank: int, size: int, root: int) -> Blocks:
    """Start with a contribution to every block."""
    return [Value(rank)] * size


def own_block(rank: int, size: int, root: int) -> Blocks:
    """Start with one block and nothing of the others."""
    return [Value(block) if block == rank else None for block in range(size)]


def at_root(rank: int, size: int, root: int) -> Blocks:
    """Start with everything on the root and nothing elsewhere."""
    return [Value(root) if rank == root else None] * size


def leaves(term: Term) -> list[int]:
    """Return the contributions in a term, in the order in which they are combined."""
    if isinstance(term, int):
        return [term]
    return [leaf for part in term for leaf in leaves(part)]


def simulate(
    schedules: Sequence[Schedule], start: Sequence[Blocks], apart: bool = False
) -> Trace:
    """Run all ranks' schedules to their end.

    With `apart`, what is sent is always what a rank began with, and what is received
    goes to another array, which is empty in the beginning.

    Raises:
        AssertionError: a deadlock, partners who disagree, a block that is sent before
            it is there or copied before it is complete, a contribution counted twice,
            a `final` in the wrong place.
    """
    size = len(schedules)
    begin: list[Blocks] = [[None] * size if apart else list(b) for b in start]
    trace = Trace(begin, 0, [0] * size, [0] * size)
    places = [0] * size
    while any(place < len(schedules[rank]) for rank, place in enumerate(places)):
        steps = [
            schedules[rank][place] if place < len(schedules[rank]) else None
            for rank, place in enumerate(places)
        ]
        ready = _can_finish(steps)
        assert ready, f"deadlock: ranks stand at {dict(enumerate(steps))}"
        before = [list(blocks) for blocks in (start if apart else trace.blocks)]
        for rank in sorted(ready, key=lambda rank: _depth(rank, steps)):
            step = steps[rank]
            assert step is not None
            _receive(trace, rank, step, steps, before)
            trace.sent[rank] += _length(step.send)
            places[rank] += 1
        trace.rounds += 1
    return trace


def _depth(rank: int, steps: Sequence[Step | None]) -> int:
    """Count the ranks before this one that pass on what they receive in this step."""
    depth, place = 0, rank
    while (step := steps[place]) is not None and step.receive_from >= 0:
        before = steps[step.receive_from]
        if before is None or not before.forward:
            break
        depth, place = depth + 1, step.receive_from
        assert depth < len(steps), f"deadlock: a ring of forwarding ranks at {rank}"
    return depth


def _can_finish(steps: Sequence[Step | None]) -> list[int]:
    """Return the ranks whose peers are in the matching step, and theirs, and so on."""
    ready = {rank for rank, step in enumerate(steps) if step is not None}
    while True:
        stuck = {rank for rank in ready if not _partners_ready(rank, steps, ready)}
        if not stuck:
            return sorted(ready)
        ready -= stuck


def _partners_ready(rank: int, steps: Sequence[Step | None], ready: set[int]) -> bool:
    step = steps[rank]
    assert step is not None
    for peer, way_back in ((step.send_to, 2), (step.receive_from, 0)):
        if peer < 0:
            continue
        assert peer != rank, f"rank {rank} exchanges with itself: {step}"
        theirs = steps[peer] if peer in ready else None
        if theirs is None or theirs[way_back] != rank:
            return False
    return True


def _receive(
    trace: Trace,
    rank: int,
    step: Step,
    steps: Sequence[Step | None],
    before: Sequence[Blocks],
) -> None:
    """Take what the partner sends in this round, as it was when the round began."""
    for peer, run in ((step.send_to, step.send), (step.receive_from, step.receive)):
        assert (peer < 0) == (run == NOTHING), f"rank {rank}: half a step: {step}"
    if step.receive_from < 0:
        return
    partner = steps[step.receive_from]
    assert partner is not None
    assert partner.send == step.receive, (
        f"rank {step.receive_from} sends {partner.send}, "
        f"rank {rank} receives {step.receive}"
    )
    size = len(trace.blocks)
    # A rank that forwards sends what it has after its own part of this step.
    sender = (trace.blocks if partner.forward else before)[step.receive_from]
    for block in (block % size for block in range(*step.receive)):
        theirs, mine = sender[block], trace.blocks[rank][block]
        assert theirs is not None, f"block {block} is sent before it is there: {step}"
        if step.reduce:
            trace.blocks[rank][block] = _combine(theirs, mine, step, size)
        else:
            over_own = mine is not None
            assert theirs.finished or not over_own, f"copied before complete: {step}"
            trace.blocks[rank][block] = theirs
    if step.reduce:
        trace.reduced[rank] += _length(step.receive)


def _combine(theirs: Value, mine: Value | None, step: Step, size: int) -> Value:
    assert mine is not None, f"nothing to combine with: {step}"
    pair = (theirs.term, mine.term) if step.lower_first else (mine.term, theirs.term)
    assert not theirs.finished and not mine.finished, f"combined after final: {step}"
    found = sorted(leaves(pair))
    assert len(set(found)) == len(found), f"counted twice: {found} after {step}"
    complete = found == list(range(size))
    assert step.final == complete, f"final is {step.final} with {found}: {step}"
    return Value(pair, finished=step.final)


def _length(run: Run) -> int:
    return run[1] - run[0]
