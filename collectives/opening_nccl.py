"""Opening a group's NCCL communicator, before the first call that goes that way.

Rank 0 makes an id, which travels as raw bytes; nobody joins before all have it, and
nobody makes a call before all have joined. Ranks join in a thread, and tell every other
one as soon as they are through or have failed. So all of them come to the same verdict
at once where one cannot join, though NCCL would let the others wait.
"""

from __future__ import annotations

import time

import numpy as np

from collectives.algorithms.small import all_gather_errors, broadcast_bytes
from collectives.errors import CollectiveTimeoutError
from collectives.group import RESULT_TAGS, SEQUENCE_BITS, Group
from collectives.transport.nccl import Joining, Nccl, unique_id
from collectives.waiting import TimedOut

JOINED, FAILED = 1, 2


def open_nccl(group: Group, timeout_s: float) -> None:
    """Make the NCCL communicator of a group; once, by all members.

    The device that is current is the one that this rank works with. Afterwards
    `group.nccl` is there, or `group.gpus.refusals` says, on all ranks, why it is not.

    Raises:
        CollectiveTimeoutError: some rank did not join in time; names it.
        TimedOut, PeerLost: as in `Group.wait`.
    """
    assert group.gpus is not None, "the ranks have told each other what they have"
    start = time.monotonic()
    raw, error = b"", ""
    if group.rank == 0:
        try:
            raw = unique_id()
        except Exception as own:  # whatever it is, the other ranks must hear of it
            error = f"{type(own).__name__}: {own}"
    raw = bytes(broadcast_bytes(group, raw, 0, timeout_s))
    errors = all_gather_errors(group, error, timeout_s)  # and a barrier: all have it
    if not errors:
        joining = Joining(group, raw)
        joining.start()
        try:
            _wait_for_all(group, joining, timeout_s)
            errors = all_gather_errors(group, joining.error, timeout_s)
        except BaseException:
            joining.abort()
            raise
        if errors:
            joining.abort()
        else:
            group.nccl = Nccl(group, joining, time.monotonic() - start)
            group.at_close.append(group.nccl.close)
    if errors:
        group.gpus.refusals["nccl"] = f"it cannot be opened: {errors}"


def _wait_for_all(group: Group, joining: Joining, timeout_s: float) -> None:
    """Wait until every rank has joined or failed; one that fails releases the others.

    Raises:
        CollectiveTimeoutError, TimedOut, PeerLost: see `open_nccl`.
    """
    others = [rank for rank in range(group.size) if rank != group.rank]
    tag = RESULT_TAGS + (group.sequence & SEQUENCE_BITS)
    verdicts = np.zeros((group.size, 1), np.uint8)
    receives = {r: group.messages.receive(r, verdicts[r], tag) for r in others}
    group.stranded.append((joining, verdicts, receives))

    def released() -> bool:
        heard = [verdicts[r, 0] for r in others if receives[r].done()]
        return not joining.is_alive() or FAILED in heard

    try:
        group.wait(released, timeout_s)
        own = verdicts[group.rank]
        own[0] = JOINED if joining.through else FAILED
        sends = [group.messages.send(rank, own, tag) for rank in others]
        group.stranded.append(sends)
        for pending in (*receives.values(), *sends):
            group.wait(pending.done, timeout_s)
    except TimedOut as late:
        if late.gave_up >= 0:
            raise
        for pending in receives.values():
            pending.done()  # of those nobody waited for by now
        inside = [r for r in range(group.size) if not verdicts[r, 0]]
        raise _stuck(group, inside, timeout_s) from None
    del group.stranded[-2:]


def _stuck(group: Group, inside: list[int], timeout_s: float) -> CollectiveTimeoutError:
    """Return the error for ranks that did not come through; the group is broken."""
    text = (
        f"rank {group.rank}: NCCL could not be opened within {timeout_s:g} s in "
        f"{group.doing} #{group.sequence}: ranks {inside} have not joined; "
        "NCCL_DEBUG=INFO makes NCCL say where it stands"
    )
    group.broken = text
    return CollectiveTimeoutError(text)
