"""Groups made from groups: some of the ranks, or all of them once more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import numpy as np

from collectives.board import Board, board_bytes
from collectives.errors import ExhaustedError
from collectives.group import Group
from collectives.schedules import dissemination
from collectives.transport import Messages
from collectives.watchdog import Guarded

PLACE_TAG, OUTCOME_TAGS = 0x6800, 0x6810


def derive(
    parent: Group, ranks: Sequence[int], timeout_s: float, background: bool = False
) -> Group:
    """Return a group of some of the parent's ranks, in that order.

    Collective over `ranks` and nobody else. They must agree on the list already: making
    a communicator blocks inside the MPI, under the watchdog. `background` tells that
    its calls will be made by a thread of ours.

    Raises:
        ExhaustedError: on all of `ranks`, because one of them could not make it.
    """
    messages = _transport(parent, ranks, timeout_s)
    topology = parent.topology.restricted(ranks)
    group = Group(
        messages,
        topology,
        arena=parent.arena,
        liveness=parent.liveness
        and parent.liveness.renumbered(dict(zip(ranks, count(), strict=False))),
        mpi=getattr(messages, "comm", None),
        native=getattr(messages, "comm", None),
        parent=parent,
        members=parent.some(ranks, background),
        waits=parent.waits,
    )
    if parent.arena is not None:
        _share_a_board(group, timeout_s)
    root = parent
    while root.parent is not None:
        root = root.parent
    root.derived.add(group)
    return group


def _transport(parent: Group, ranks: Sequence[int], timeout_s: float) -> Messages:
    """Return the transport of a group, or raise on all of `ranks` if one got none."""
    messages, error = None, None
    with Guarded(timeout_s, lambda: f"rank {parent.rank} is stuck in making a group"):
        try:
            messages = parent.messages.derive(ranks)
        except ExhaustedError as own:
            error = own
    mine = parent.size if error is None else parent.rank
    without = lowest_among(parent, ranks, mine, OUTCOME_TAGS, timeout_s)
    if messages is not None and without == parent.size:
        return messages
    if messages is not None:
        messages.close()
    raise error or ExhaustedError(
        f"rank {without} got no communicator for a new group; it must close() some"
    )


def lowest_among(
    parent: Group, ranks: Sequence[int], mine: int, tags: int, timeout_s: float
) -> int:
    """Return the lowest number that any of `ranks` gives; only they call it.

    Nobody returns before all have called. Needs a tag for each round, from `tags` on.
    """
    messages, place = parent.messages, list(ranks).index(parent.rank)
    lowest, incoming = np.array([mine], np.int64), np.empty(1, np.int64)
    for step, (target, source) in enumerate(dissemination(place, len(ranks))):
        outgoing, tag = lowest.copy(), tags + step
        pending = [
            messages.send(ranks[target], outgoing.view(np.uint8), tag),
            messages.receive(ranks[source], incoming.view(np.uint8), tag),
        ]
        parent.stranded.append((pending, outgoing, incoming))
        for one in pending:
            parent.wait(one.done, timeout_s)
        parent.stranded.pop()
        lowest = np.minimum(lowest, incoming)
    return int(lowest[0])


def _share_a_board(group: Group, timeout_s: float) -> None:
    """Let the lowest rank of each host carve a board, and tell the others where."""
    arena, members = group.arena, group.topology.local_ranks
    assert arena is not None
    nbytes = board_bytes(len(members))
    offset = -1
    if group.rank == members[0]:
        with suppress(MemoryError):  # without a board they agree by messages: slower
            offset = group.lines = arena.carve(nbytes)
    offset = _tell(group, members, offset, timeout_s)
    if offset >= 0:
        number = group.members.ranks[group.rank]
        memory = arena.view(offset, nbytes)
        group.use_board(Board(memory, members, group.rank, place=offset, number=number))


def _tell(group: Group, members: Sequence[int], number: int, timeout_s: float) -> int:
    """Hand a number from the first member to the others."""
    messages: Messages = group.messages
    data = np.array([number], np.int64)
    if group.rank == members[0]:
        sends = [
            messages.send(peer, data.view(np.uint8), PLACE_TAG) for peer in members[1:]
        ]
        for pending in sends:
            group.wait(pending.done, timeout_s)
    else:
        pending = messages.receive(members[0], data.view(np.uint8), PLACE_TAG)
        group.wait(pending.done, timeout_s)
    return int(data[0])
