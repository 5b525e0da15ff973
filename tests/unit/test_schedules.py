"""Every schedule, proved by a lockstep run for 1 to 33 ranks.

A new schedule is a new row in `CLAIMS`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from harness.lockstep import Start, at_root, everything, leaves, own_block, simulate

from collectives import schedules
from collectives.schedules import Schedule

SIZES = range(1, 34)


def log2_up(size: int) -> int:
    return (size - 1).bit_length()


def is_power_of_two(size: int) -> bool:
    return size & (size - 1) == 0


def doubling_rounds(size: int) -> int:
    """Count the exchanges between the ranks that are left, fold and unfold."""
    return log2_up(size) if is_power_of_two(size) else size.bit_length() - 1 + 2


def doubling_sends(size: int) -> int:
    """Count what the busiest rank sends: its exchanges, and one more to unfold."""
    return log2_up(size) if is_power_of_two(size) else size.bit_length() - 1 + 1


@dataclass(frozen=True)
class Claim:
    """What a schedule's docstring promises; p ranks, rooted ones counted from root."""

    make: Callable[..., Schedule]
    start: Start
    ends_complete: Callable[[int, int, int], bool]
    """`(rank, block, root)`: who has which block complete in the end."""
    first: Callable[[int, int], int] | None
    """`(block, root)`: the rank that comes first in the order of combining; the others
    follow by number, around the end. None for schedules that only copy."""
    rounds: Callable[[int], int]
    """Steps until the last rank is done, at most."""
    sent: Callable[[int], int]
    """Blocks sent by the busiest rank."""
    reduced: Callable[[int], int]
    """Blocks combined by the busiest rank."""
    rooted: bool = False


CLAIMS = {
    "ring_reduce_scatter": Claim(
        schedules.ring_reduce_scatter,
        start=everything,
        ends_complete=lambda rank, block, root: rank == block,
        first=lambda block, root: block + 1,
        rounds=lambda p: p - 1,
        sent=lambda p: p - 1,
        reduced=lambda p: p - 1,
    ),
    "ring_all_gather": Claim(
        schedules.ring_all_gather,
        start=own_block,
        ends_complete=lambda rank, block, root: True,
        first=None,
        rounds=lambda p: p - 1,
        sent=lambda p: p - 1,
        reduced=lambda p: 0,
    ),
    "ring_all_reduce": Claim(
        schedules.ring_all_reduce,
        start=everything,
        ends_complete=lambda rank, block, root: True,
        first=lambda block, root: block + 1,
        rounds=lambda p: 2 * (p - 1),
        sent=lambda p: 2 * (p - 1),
        reduced=lambda p: p - 1,
    ),
    "ring_reduce": Claim(
        schedules.ring_reduce,
        start=everything,
        ends_complete=lambda rank, block, root: rank == root,
        first=lambda block, root: block + 1,
        rounds=lambda p: 2 * (p - 1),
        sent=lambda p: p if p > 1 else 0,
        reduced=lambda p: p - 1,
        rooted=True,
    ),
    "recursive_doubling": Claim(
        schedules.recursive_doubling,
        start=everything,
        ends_complete=lambda rank, block, root: True,
        first=lambda block, root: 0,
        rounds=doubling_rounds,
        sent=lambda p: p * doubling_sends(p),
        reduced=lambda p: p * doubling_sends(p),
    ),
    "tree_broadcast": Claim(
        schedules.tree_broadcast,
        start=at_root,
        ends_complete=lambda rank, block, root: True,
        first=None,
        rounds=log2_up,
        sent=lambda p: p * log2_up(p),
        reduced=lambda p: 0,
        rooted=True,
    ),
    "tree_reduce": Claim(
        schedules.tree_reduce,
        start=everything,
        ends_complete=lambda rank, block, root: rank == root,
        first=lambda block, root: root,
        rounds=log2_up,
        sent=lambda p: p if p > 1 else 0,
        reduced=lambda p: p * log2_up(p),
        rooted=True,
    ),
}


def roots_of(claim: Claim, size: int) -> list[int]:
    if not claim.rooted:
        return [-1]
    return list(range(size)) if size <= 9 else [0, 1, size // 2, size - 1]


def run(claim: Claim, size: int, root: int):
    arguments = (root,) if claim.rooted else ()
    every_rank = [claim.make(rank, size, *arguments) for rank in range(size)]
    return simulate(every_rank, [claim.start(rank, size, root) for rank in range(size)])


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("size", SIZES)
def test_results_are_complete_and_have_the_same_bits(name, size):
    claim = CLAIMS[name]
    for root in roots_of(claim, size):
        trace = run(claim, size, root)
        for block in range(size):
            origin = root if claim.start is at_root else block
            terms = set()
            for rank in range(size):
                if not claim.ends_complete(rank, block, root):
                    continue
                value = trace.blocks[rank][block]
                assert value is not None, f"rank {rank} has no block {block}"
                terms.add(value.term)
                if claim.first is None:
                    assert value.term == origin
                else:
                    first = claim.first(block, root)
                    order = [(first + step) % size for step in range(size)]
                    assert leaves(value.term) == order
                    assert value.finished == (size > 1)
            assert len(terms) == 1, f"block {block}: different brackets: {terms}"


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("size", SIZES)
def test_steps_and_bytes_are_those_of_the_docstring(name, size):
    claim = CLAIMS[name]
    for root in roots_of(claim, size):
        trace = run(claim, size, root)
        assert trace.rounds == claim.rounds(size)
        assert max(trace.sent) == claim.sent(size)
        assert max(trace.reduced) == claim.reduced(size)


@pytest.mark.parametrize("size", SIZES)
def test_dissemination_reaches_everybody(size):
    rounds = [schedules.dissemination(rank, size) for rank in range(size)]
    assert {len(one) for one in rounds} == {log2_up(size)}
    heard = [{rank} for rank in range(size)]
    for step in range(log2_up(size)):
        before = [set(one) for one in heard]
        for rank in range(size):
            target, source = rounds[rank][step]
            assert rounds[target][step][1] == rank, "partners do not match"
            heard[rank] |= before[source]
        assert {len(one) for one in heard} == {min(2 ** (step + 1), size)}
    assert all(one == set(range(size)) for one in heard)


def test_every_schedule_has_a_claim():
    """A schedule without a row here would be unproved."""
    public = {
        name
        for name, value in inspect.getmembers(schedules, inspect.isfunction)
        if value.__module__ == schedules.__name__ and not name.startswith("_")
    }
    assert public == {*CLAIMS, "dissemination"}
