"""Every schedule, proved by a lockstep run for 1 to 33 ranks.

A new schedule is a new row in `CLAIMS`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from harness.lockstep import Start, at_root, everything, leaves, own_block, simulate

from collectives import schedules
from collectives.lanes import around_hosts
from collectives.schedules import Schedule
from collectives.schedules.step import in_places

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
    """`(block, root)`: the rank that comes first in the order of combining. None for
    schedules that only copy."""
    rounds: Callable[[int], int]
    """Steps until the last rank is done, at most."""
    sent: Callable[[int], int]
    """Blocks sent by the busiest rank."""
    reduced: Callable[[int], int]
    """Blocks combined by the busiest rank."""
    rooted: bool = False
    in_order: bool = True
    """Whether the others follow the first one by number."""


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
    "pairwise_reduce_scatter": Claim(
        schedules.pairwise_reduce_scatter,
        start=everything,
        ends_complete=lambda rank, block, root: rank == block,
        first=lambda block, root: block + 1,
        rounds=lambda p: p - 1,
        sent=lambda p: p - 1,
        reduced=lambda p: p - 1,
    ),
    "pairwise_all_reduce": Claim(
        schedules.pairwise_all_reduce,
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
    "circulant_reduce_scatter": Claim(
        schedules.circulant_reduce_scatter,
        start=everything,
        ends_complete=lambda rank, block, root: rank == block,
        first=lambda block, root: block,
        rounds=log2_up,
        sent=lambda p: p - 1,
        reduced=lambda p: p - 1,
        in_order=False,
    ),
    "circulant_all_gather": Claim(
        schedules.circulant_all_gather,
        start=own_block,
        ends_complete=lambda rank, block, root: True,
        first=None,
        rounds=log2_up,
        sent=lambda p: p - 1,
        reduced=lambda p: 0,
    ),
    "circulant_all_reduce": Claim(
        schedules.circulant_all_reduce,
        start=everything,
        ends_complete=lambda rank, block, root: True,
        first=lambda block, root: block,
        rounds=lambda p: 2 * log2_up(p),
        sent=lambda p: 2 * (p - 1),
        reduced=lambda p: p - 1,
        in_order=False,
    ),
    "halving_doubling": Claim(
        schedules.halving_doubling,
        start=everything,
        ends_complete=lambda rank, block, root: True,
        first=lambda block, root: 0,
        rounds=lambda p: 2 * (p.bit_length() - 1) + (0 if is_power_of_two(p) else 2),
        sent=lambda p: halving_blocks(p)[0],
        reduced=lambda p: halving_blocks(p)[1],
        in_order=False,
    ),
    "chain_broadcast": Claim(
        schedules.chain_broadcast,
        start=at_root,
        ends_complete=lambda rank, block, root: True,
        first=None,
        rounds=lambda p: min(p - 1, 1),
        sent=lambda p: p if p > 1 else 0,
        reduced=lambda p: 0,
        rooted=True,
    ),
    "chain_reduce": Claim(
        schedules.chain_reduce,
        start=everything,
        ends_complete=lambda rank, block, root: rank == root,
        first=lambda block, root: 0,
        rounds=lambda p: min(p - 1, 1) * 2,
        sent=lambda p: p if p > 1 else 0,
        reduced=lambda p: p if p > 1 else 0,
        rooted=True,
    ),
    "chain_all_reduce": Claim(
        schedules.chain_all_reduce,
        start=everything,
        ends_complete=lambda rank, block, root: True,
        first=lambda block, root: 0,
        rounds=lambda p: min(p - 1, 1) * 2,
        sent=lambda p: p * min(p - 1, 2),
        reduced=lambda p: p if p > 1 else 0,
    ),
    "tree_gather": Claim(
        schedules.tree_gather,
        start=own_block,
        ends_complete=lambda rank, block, root: rank == root,
        first=None,
        rounds=log2_up,
        sent=lambda p: max([min(2**k, p - 2**k) for k in range(log2_up(p))], default=0),
        reduced=lambda p: 0,
        rooted=True,
    ),
    "tree_scatter": Claim(
        schedules.tree_scatter,
        start=at_root,
        ends_complete=lambda rank, block, root: rank == block,
        first=None,
        rounds=log2_up,
        sent=lambda p: p - 1,
        reduced=lambda p: 0,
        rooted=True,
    ),
    "linear_gather": Claim(
        schedules.linear_gather,
        start=own_block,
        ends_complete=lambda rank, block, root: rank == root,
        first=None,
        rounds=lambda p: p - 1,
        sent=lambda p: min(p - 1, 1),
        reduced=lambda p: 0,
        rooted=True,
    ),
    "linear_scatter": Claim(
        schedules.linear_scatter,
        start=at_root,
        ends_complete=lambda rank, block, root: rank == block,
        first=None,
        rounds=lambda p: p - 1,
        sent=lambda p: p - 1,
        reduced=lambda p: 0,
        rooted=True,
    ),
}


def halving_blocks(size: int) -> tuple[int, int]:
    """Return the blocks that the busiest rank sends and reduces: see the docstring.

    Where the size is no power of two, a rank that is left holds one block or two.
    """
    power = 1 << (size.bit_length() - 1)
    shares = [(i + 1) * size // power - i * size // power for i in range(power)]
    extra = size - power
    sent, reduced = [size if extra else 0], [0]
    for index in range(power):
        mine = shares[index]
        folded = index < extra
        sent.append(size - mine + _kept(shares, index) + folded * size)
        reduced.append(_kept(shares, index) + folded * size)
    return (max(sent), max(reduced)) if size > 1 else (0, 0)


def _kept(shares: list[int], index: int) -> int:
    """Add up what a rank keeps in each halving."""
    low, high, total = 0, len(shares), 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if index >= middle else (low, middle)
        total += sum(shares[low:high])
    return total


def roots_of(claim: Claim, size: int) -> list[int]:
    if not claim.rooted:
        return [-1]
    return list(range(size)) if size <= 9 else [0, 1, size // 2, size - 1]


def run(claim: Claim, size: int, root: int):
    arguments = (root,) if claim.rooted else ()
    every_rank = [claim.make(rank, size, *arguments) for rank in range(size)]
    start = [claim.start(rank, size, root) for rank in range(size)]
    return simulate(every_rank, start)


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
                    found = leaves(value.term)
                    assert (found if claim.in_order else sorted(found)) == (
                        order if claim.in_order else sorted(order)
                    )
                    assert value.finished == (size > 1)
            assert len(terms) == 1, f"block {block}: different brackets: {terms}"


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("size", SIZES)
def test_steps_and_bytes_are_those_of_the_docstring(name, size):
    claim = CLAIMS[name]
    traces = [run(claim, size, root) for root in roots_of(claim, size)]
    assert max(trace.rounds for trace in traces) == claim.rounds(size)
    assert max(max(trace.sent) for trace in traces) == claim.sent(size)
    assert max(max(trace.reduced) for trace in traces) == claim.reduced(size)


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


@pytest.mark.parametrize("size", SIZES)
def test_a_scan_combines_what_is_before_and_a_shift_moves_it_on(size):
    scans = [schedules.chain_scan(rank, size) for rank in range(size)]
    trace = simulate(scans, [everything(rank, size, -1) for rank in range(size)])
    for rank in range(1, size):
        for value in trace.blocks[rank]:
            assert leaves(value.term) == list(range(rank + 1))
    shifts = [schedules.chain_shift(rank, size) for rank in range(size)]
    start = [everything(rank, size, -1) for rank in range(size)]
    shifted = simulate(shifts, start, apart=True).blocks
    assert shifted[0] == [None] * size
    for rank in range(1, size):
        assert [value.term for value in shifted[rank]] == [rank - 1] * size


@pytest.mark.parametrize("size", SIZES)
def test_all_to_all_brings_every_rank_its_block_from_everybody(size):
    """A block's term is `(sender, block)`; block s of the result came from rank s."""
    steps = [schedules.pairwise_all_to_all(rank, size) for rank in range(size)]
    got = [{} for _ in range(size)]
    for step in range(size - 1):
        targets = set()
        for rank in range(size):
            mine = steps[rank][step]
            theirs = steps[mine.send_to][step]
            assert theirs.receive_from == rank
            assert mine.send == (mine.send_to, mine.send_to + 1)
            assert theirs.receive == (rank, rank + 1)
            got[mine.send_to][rank] = mine.send[0]
            targets.add(mine.send_to)
        assert targets == set(range(size)), "two ranks send to the same one"
    for rank in range(size):
        others = set(range(size)) - {rank}
        assert got[rank] == dict.fromkeys(others, rank)


def test_every_schedule_has_a_claim():
    """A schedule without a row here would be unproved."""
    public = {
        name
        for name, value in inspect.getmembers(schedules, inspect.isfunction)
        if value.__module__.startswith(schedules.__name__)
    }
    elsewhere = {"dissemination", "chain_scan", "chain_shift", "pairwise_all_to_all"}
    assert public == {*CLAIMS} | elsewhere


@pytest.mark.parametrize("host_of", [(0, 1) * 3, (0, 1, 2, 0, 1), (1, 0, 0, 1), (0, 0)])
def test_a_ring_around_hosts_is_complete_and_uses_each_link_once(host_of):
    order, size = around_hosts(host_of), len(host_of)
    every_rank = [
        in_places(schedules.ring_all_reduce(order.index(rank), size), order)
        for rank in range(size)
    ]
    trace = simulate(every_rank, [everything(rank, size, -1) for rank in range(size)])
    for block in range(size):
        terms = {str(trace.blocks[rank][block].term) for rank in range(size)}
        assert len(terms) == 1
        assert sorted(leaves(trace.blocks[0][block].term)) == list(range(size))
    mine = in_places(schedules.ring_reduce_scatter(order.index(1), size), order)
    assert mine[-1].receive == (1, 2)  # rank 1 ends with block 1
    for steps in zip(*every_rank, strict=True):
        links = [
            (host_of[rank], host_of[step.send_to])
            for rank, step in enumerate(steps)
            if host_of[rank] != host_of[step.send_to]
        ]
        assert len(links) == len(set(links)) <= len(set(host_of))
