"""Lanes: which ranks carry what between hosts.

What goes from host to host is cut into *lanes*, as many as the largest host has ranks.
On each host a lane has a *carrier*, which talks to the carriers of that lane on the
other hosts. So all ranks of a host use the network at once, and none carries more than
another; where a host has fewer ranks than there are lanes, each carries several.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from collectives.topology import Topology


@dataclass(frozen=True)
class Lanes:
    """The lanes of a group, as one of its ranks sees them."""

    hosts: tuple[tuple[int, ...], ...]
    """The ranks of each host."""
    host: int
    """This rank's host."""
    place: int
    """This rank's place on its host."""
    count: int
    """How many lanes there are."""
    mine: tuple[int, ...]
    """Those that this rank carries on its host."""
    far: tuple[int, ...]
    """The other hosts, the next one first, so that not all send to the same."""

    def carrier(self, host: int, lane: int) -> int:
        """Return the rank that carries a lane on a host."""
        ranks = self.hosts[host]
        return ranks[lane % len(ranks)]

    def place_of(self, lane: int) -> int:
        """Return the place on this host of a lane's carrier."""
        return lane % len(self.hosts[self.host])


def lanes_of(topology: Topology, most: int = 0) -> Lanes:
    """Return the lanes of a group; at most so many, where `most` is not 0."""
    return _lanes(topology.host_of, topology.rank, most)


@lru_cache(64)
def _lanes(host_of: tuple[int, ...], rank: int, most: int) -> Lanes:
    ranks: list[list[int]] = [[] for _ in range(max(host_of) + 1)]
    for member, host in enumerate(host_of):
        ranks[host].append(member)
    here, count = host_of[rank], len(ranks)
    place, locals_ = ranks[here].index(rank), len(ranks[here])
    lanes = max(map(len, ranks))
    lanes = min(lanes, most) if most else lanes
    return Lanes(
        hosts=tuple(map(tuple, ranks)),
        host=here,
        place=place,
        count=lanes,
        mine=tuple(lane for lane in range(lanes) if lane % locals_ == place),
        far=tuple((here + step) % count for step in range(1, count)),
    )


@lru_cache(64)
def around_hosts(host_of: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ranks in an order in which those of a host come together.

    Around such a ring each host sends to one other host only.
    """
    return tuple(sorted(range(len(host_of)), key=host_of.__getitem__))
