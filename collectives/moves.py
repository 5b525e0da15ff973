"""Which moves every algorithm makes: its schedule, walked, or a formula.

A schedule is walked on one rank, the one that moves the most. How many ranks of its
host cross the network in the same step, and share the host's link, follows from who
exchanges with whom: ranks are taken to be placed host by host, as many on each. So a
group of 16,384 ranks costs no more than the steps of one of them; what was walked is
kept. docs/tuning.md has the sums in closed form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from collectives import schedules
from collectives.costs import Move
from collectives.schedules import Schedule, Step
from collectives.window import MAIL_BYTES

SEGMENT_BYTES = 512 << 10
TWO_LEVELS = "hierarchical", "hierarchical_copy", "hierarchical_chain"
RIDE_BYTES = 64 << 10  # what travels with the agreement across hosts


Make = Callable[[int, int], Schedule]
"""`(rank, size)` to the steps of a rank."""


class Place(NamedTuple):
    """How many ranks there are, and how many of them are on each host at most."""

    ranks: int
    per_host: int

    @property
    def hosts(self) -> int:
        """The number of hosts, all of them full except perhaps the last one."""
        return -(-self.ranks // self.per_host)


class Part(NamedTuple):
    """Steps of a schedule that cost the same."""

    kind: str
    blocks: int
    """What one of them moves, of as many blocks as there are ranks, on all lanes."""
    times: int
    segments: int = 0
    """How many segments more must pass before the last rank has its first one."""


def _rooted(make: Callable[[int, int, int], Schedule]) -> Make:
    """Return the schedule with root 0."""
    return lambda rank, size: make(rank, size, 0)


def _pairwise(rank: int, size: int) -> Schedule:
    """Return what ordered.all_reduce does: it adds everything up in between."""
    collect = schedules.pairwise_reduce_scatter(rank, size)
    return collect + schedules.ring_all_gather(rank, size)


SCHEDULES: dict[str, dict[str, Make]] = {
    "all_reduce": {
        "recursive_doubling": schedules.recursive_doubling,
        "halving_doubling": schedules.halving_doubling,
        "circulant": schedules.circulant_all_reduce,
        "ring": schedules.ring_all_reduce,
        "exchange": schedules.pairwise_all_reduce,
        "chain": schedules.chain_all_reduce,
        "pairwise": _pairwise,
    },
    "reduce": {
        "tree": _rooted(schedules.tree_reduce),
        "ring": _rooted(schedules.ring_reduce),
        "chain": _rooted(schedules.chain_reduce),
    },
    "reduce_scatter": {
        "circulant": schedules.circulant_reduce_scatter,
        "ring": schedules.ring_reduce_scatter,
        "exchange": schedules.pairwise_reduce_scatter,
        "pairwise": schedules.pairwise_reduce_scatter,
    },
    "scan": {"chain": schedules.chain_scan},
    "exclusive_scan": {"chain": schedules.chain_scan},
    "broadcast": {
        "tree": _rooted(schedules.tree_broadcast),
        "chain": _rooted(schedules.chain_broadcast),
    },
    "all_gather": {
        "circulant": schedules.circulant_all_gather,
        "ring": schedules.ring_all_gather,
    },
    "gather": {
        "tree": _rooted(schedules.tree_gather),
        "linear": _rooted(schedules.linear_gather),
    },
    "scatter": {
        "tree": _rooted(schedules.tree_scatter),
        "linear": _rooted(schedules.linear_scatter),
    },
    "all_to_all": {"pairwise": schedules.pairwise_all_to_all},
}


@lru_cache(1024)
def walk(collective: str, algorithm: str, place: Place) -> tuple[Part, ...]:
    """Return the steps of the rank that moves the most, like ones together."""
    make, size = SCHEDULES[collective][algorithm], place.ranks
    # Root and first rank, or one that is passed by, or folds: some do more than others.
    rank, steps = max(
        ((rank, make(rank, size)) for rank in range(min(2, size))), key=_moved
    )
    found: Counter[Part] = Counter()
    for step in steps:
        lanes = _lanes(rank, step, place)
        kind = f"{'far' if lanes else 'near'}_{'combine' if step.reduce else 'copy'}"
        blocks = max(_length(step.send), _length(step.receive)) * max(1, lanes)
        segments = size - 2 if step.forward else 0
        found[Part(kind, blocks, 0, segments)] += 1
    return tuple(part._replace(times=times) for part, times in found.items())


def _moved(one: tuple[int, Schedule]) -> tuple[int, int, int]:
    """Return how much a rank waits for: blocks, then steps that add or pass on."""
    _, steps = one
    blocks = sum(max(_length(step.send), _length(step.receive)) for step in steps)
    adding = sum(step.reduce for step in steps)
    return blocks, adding, sum(step.forward for step in steps)


def _length(run: tuple[int, int]) -> int:
    return run[1] - run[0]


def _lanes(rank: int, step: Step, place: Place) -> int:
    """Return how many ranks of a host cross the network in a step; 0 if none does."""
    size, most = place.ranks, place.per_host
    if most >= size:
        return 0
    to, source = step.send_to, step.receive_from
    if step.forward or to < 0 or source < 0:  # one after the other, or a tree
        return int(max(to, source) // most != rank // most or step.forward)
    distance = abs(to - rank)
    shared = min(distance, size - distance, most, size - most)
    if to != source or distance & (distance - 1):
        return shared  # all send so many ranks ahead
    return (
        min(most, size - most) if distance >= most or to // most != rank // most else 0
    )


def scheduled(
    collective: str, algorithm: str, place: Place, nbytes: float
) -> list[Move]:
    """Return the moves of an algorithm that has a schedule."""
    moves = []
    for kind, blocks, times, segments in walk(collective, algorithm, place):
        moves.append(Move(kind, nbytes * blocks / place.ranks, times))
        if segments:
            far = place.hosts - 1 if kind.startswith("far") else 0
            few = min(nbytes, SEGMENT_BYTES)
            near = kind.replace("far", "near")
            moves.append(Move(kind, few, times * far))
            moves.append(Move(near, few, times * max(0, segments - far)))
    return [move for move in moves if move.times]


def _windowed(stored: float, added: float, place: Place, nbytes: float) -> list[Move]:
    """Return moves through a window: shares of (p-1)/p n that are stored and added."""
    share = nbytes * (place.ranks - 1) / place.ranks
    return [
        Move("hand_over"),
        Move("store", share * stored),
        *([Move("reduce", share * added)] if added else []),
    ]


def mail_bytes(ranks: int) -> int:
    """Return how large an array may be that is there before the ranks have agreed."""
    return min(MAIL_BYTES, 2 * MAIL_BYTES // ranks)


def _shared_all_reduce(place: Place, nbytes: float) -> list[Move]:
    if nbytes > mail_bytes(place.ranks):
        return _windowed(1, 1, place, nbytes)[1:]  # it begins before they agree
    return [Move("mail", nbytes)]


def _whole(added: bool, place: Place, nbytes: float) -> list[Move]:
    """Return the moves where everything goes through the window, not only a share."""
    p = place.ranks
    return _windowed(p / max(1, p - 1), p if added else 0, place, nbytes)


def _direct(
    read: float, added: float, hand_overs: int, place: Place, nbytes: float
) -> list[Move]:
    share = nbytes * (place.ranks - 1) / place.ranks
    return [
        Move("hand_over", 0, hand_overs),
        Move("read", share * read),
        *([Move("reduce", share * added)] if added else []),
    ]


def _across(collective: str, place: Place, nbytes: float) -> list[Move]:
    """Return the moves between hosts where a host is one, whoever of it sends."""
    name = "tree" if "tree" in SCHEDULES[collective] else "circulant"
    name = name if name in SCHEDULES[collective] else "pairwise"
    return scheduled(collective, name, Place(place.hosts, 1), nbytes)


def _lanes_of_all(collective: str, place: Place, nbytes: float) -> list[Move]:
    """Return the moves of `hierarchical`: memory works while the network does.

    Of what happens inside a host only the first and the last segment is waited for.
    """
    host = Place(place.per_host, place.per_host)
    few = min(nbytes, SEGMENT_BYTES)
    return [*_windowed(1, 1, host, few), *_across(collective, place, nbytes)]


def _all_from_here(place: Place, nbytes: float) -> list[Move]:
    """Return the moves of an all-to-all by `hierarchical`: each rank has n bytes."""
    return _lanes_of_all("all_to_all", place, nbytes * place.per_host)


def _through_one(place: Place, nbytes: float) -> list[Move]:
    """Return the moves of `hierarchical_copy`: to one rank a host, across, and back."""
    host = Place(place.per_host, place.per_host)
    inside = [*_windowed(1, 1, host, nbytes), *_whole(False, host, nbytes)]
    return [*inside, *_across("all_reduce", place, nbytes)]


def _along_hosts(place: Place, nbytes: float) -> list[Move]:
    """Return the moves of `hierarchical_chain`: sums one way, results the other.

    Between two hosts both go at once; a host in the middle sends each.
    """
    host = Place(place.per_host, place.per_host)
    few = min(nbytes, SEGMENT_BYTES)
    back = [Move("far_copy", nbytes)] if place.hosts > 2 else []
    return [
        *_windowed(1, 1, host, few),
        Move("far_combine", nbytes),
        *back,
        Move("far_copy", few, 2 * place.hosts - 3),
    ]


FORMULAS: dict[str, dict[str, Callable[[Place, float], list[Move]]]] = {
    "all_reduce": {
        "shared": _shared_all_reduce,
        "direct": partial(_direct, 2, 1, 2),
        "hierarchical": partial(_lanes_of_all, "all_reduce"),
        "hierarchical_copy": _through_one,
        "hierarchical_chain": _along_hosts,
    },
    "reduce": {
        "shared": partial(_windowed, 1, 1),
        "direct": partial(_direct, 2, 1, 3),
        "hierarchical": partial(_lanes_of_all, "reduce"),
    },
    "reduce_scatter": {
        "shared": partial(_windowed, 0.5, 1),
        "direct": partial(_direct, 1, 1, 2),
        "hierarchical": partial(_lanes_of_all, "reduce_scatter"),
    },
    "scan": {"shared": partial(_whole, True)},
    "exclusive_scan": {"shared": partial(_whole, True)},
    "broadcast": {
        "shared": partial(_whole, False),
        "direct": partial(_direct, 1, 0, 2),
        "hierarchical": partial(_lanes_of_all, "broadcast"),
    },
    "all_gather": {
        "shared": partial(_windowed, 1, 0),
        "direct": partial(_direct, 1, 0, 2),
        "hierarchical": partial(_lanes_of_all, "all_gather"),
    },
    "gather": {
        "shared": partial(_windowed, 1, 0),
        "hierarchical": partial(_lanes_of_all, "gather"),
    },
    "scatter": {
        "shared": partial(_windowed, 1, 0),
        "hierarchical": partial(_lanes_of_all, "scatter"),
    },
    "all_to_all": {
        "shared": partial(_windowed, 1, 0),
        "hierarchical": _all_from_here,
    },
}


def moves(
    collective: str, algorithm: str, place: Place, nbytes: float
) -> list[Move] | None:
    """Return what an algorithm makes the busiest rank do.

    Args:
        collective: a key of `ALGORITHMS`.
        algorithm: one of that collective's.
        place: the ranks.
        nbytes: size of the whole array, as it travels.

    Returns:
        The moves; None where nobody knows: the MPI's own, and two levels where there
        is but one.
    """
    if algorithm in TWO_LEVELS and 1 in (place.hosts, place.per_host):
        return None
    formula = FORMULAS[collective].get(algorithm)
    if formula is not None:
        found = formula(place, nbytes)
    elif algorithm in SCHEDULES[collective]:
        found = scheduled(collective, algorithm, place, nbytes)
    else:
        return None
    rides = algorithm == "recursive_doubling" and nbytes <= RIDE_BYTES
    if rides and place.hosts > 1:
        return found
    return found if found[:1] == [Move("mail", nbytes)] else [Move("call"), *found]
