"""Ranks that make a group by themselves, while the others do something else.

Nobody but the ranks themselves can tell whether they mean the same group, so each sends
its list to all in it, and to all in the lists that it gets. Where the lists differ, all
who name each other thus hear all lists, and raise the same error. Then the ranks make
sure that all are there: making a communicator blocks inside the MPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collectives.calls.groups import members_of
from collectives.deriving import derive, lowest_among
from collectives.errors import InvalidArgumentError, MismatchError
from collectives.group import Group
from collectives.kernels import Array
from collectives.plans import Planner
from collectives.transport import Pending
from collectives.verdicts import describe_lists
from collectives.waiting import TimedOut

LIST_TAG, ALL_HERE_TAGS = 0x6A00, 0x6A10
# Once the lists differ nothing can come of the call; who is still to come gets so long.
GRACE_S = 10.0

Lists = dict[int, tuple[int, ...]]


def own_members(planner: Planner, ranks: Any) -> list[int]:
    """Return the members of a group that this rank must be one of."""
    members, rank = members_of(planner, ranks), planner.group.rank
    if rank not in members:
        raise InvalidArgumentError(
            f"rank {rank} is not in {members}; with members_only only those ranks call"
        )
    return members


def meet(planner: Planner, members: Sequence[int], awaited: set[int]) -> Group:
    """Make the group of `members`, which all of them call and nobody else.

    Costs each of them two messages to and from every other one.

    Args:
        planner: of the parent.
        members: this rank among them.
        awaited: all others; whoever has come is taken out.

    Raises:
        MismatchError: others gave another list.
    """
    parent, timeout_s = planner.group, planner.options.timeout_s
    lists: Lists = {parent.rank: tuple(members)}
    try:
        _hear(planner, lists, awaited)
    except TimedOut:
        if not _differ(lists):
            raise
        late = ", ".join(f"{parent.called(rank)}" for rank in sorted(awaited))
        parent.broken = f"{describe_lists(lists)}; not heard from: {late}"
        raise MismatchError(parent.broken) from None
    if _differ(lists):
        raise MismatchError(describe_lists(lists))
    lowest_among(parent, members, 0, ALL_HERE_TAGS, timeout_s)
    return derive(parent, members, timeout_s)


def _differ(lists: Lists) -> bool:
    return len(set(lists.values())) > 1


def _hear(planner: Planner, lists: Lists, awaited: set[int]) -> None:
    """Exchange lists with all ranks in any of them; `lists` has this rank's own."""
    group, timeout_s = planner.group, planner.options.timeout_s
    mine = np.array(lists[group.rank], np.int32).view(np.uint8)
    sent: list[Pending] = []
    posted: dict[int, tuple[Pending, Array]] = {}
    group.stranded.append((mine, sent, posted))
    while True:
        for peer in awaited - posted.keys():
            sent.append(group.messages.send(peer, mine, LIST_TAG))
            room = np.full(group.size, -1, np.int32)
            pending = group.messages.receive(peer, room.view(np.uint8), LIST_TAG)
            posted[peer] = pending, room
        if not awaited:
            break
        group.wait(lambda: any(posted[peer][0].done() for peer in awaited), timeout_s)
        for peer in [peer for peer in awaited if posted[peer][0].done()]:
            theirs = tuple(rank for rank in posted[peer][1].tolist() if rank >= 0)
            lists[peer] = theirs
            awaited.remove(peer)
        awaited.update(set().union(*lists.values()) - lists.keys())
        if _differ(lists):
            timeout_s = min(timeout_s, GRACE_S)
    for one in sent:
        group.wait(one.done, timeout_s)
    group.stranded.pop()
