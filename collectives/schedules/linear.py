"""Every rank deals with the root directly: the fewest bytes, and no forwarding."""

from __future__ import annotations

from collectives.schedules.step import Schedule, receive, send


def linear_gather(rank: int, size: int, root: int) -> Schedule:
    """Send every rank's block to the root.

    p - 1 steps at the root, one elsewhere; n(p-1)/p bytes, each moved once. Best where
    blocks are large, or uneven.
    """
    if rank != root:
        return [send(root, (rank, rank + 1))]
    return [receive(peer, (peer, peer + 1)) for peer in range(size) if peer != root]


def linear_scatter(rank: int, size: int, root: int) -> Schedule:
    """Send every rank its block from the root: `linear_gather` run backwards."""
    if rank != root:
        return [receive(root, (rank, rank + 1))]
    return [send(peer, (peer, peer + 1)) for peer in range(size) if peer != root]
