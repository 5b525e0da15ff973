"""Who is missing in a call that makes no progress, in words."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.ending import linger
from collectives.group import Group

GRACE_S = 1.0  # those who wait look every 0.05 s whether they are asked
MOST_NAMED = 8  # of a host that does not answer
MOST_ASKED = 1024
"""In larger groups nobody asks: all would ask all, at a time when little works."""


def missing(group: Group, timeout_s: float, peers: Sequence[int] | None = None) -> str:
    """Return who has not arrived and what each was last seen doing.

    Ranks of other hosts are asked, which takes up to `GRACE_S`; afterwards the call
    cannot go on, as those that were asked give it up as well.

    Args:
        group: the ranks.
        timeout_s: the deadline that has passed; asking takes no longer than that.
        peers: whom the call was about, where that is not all; only they are asked.
    """
    seen = group.absent(peers)
    if peers is None and group.one_board:
        return _lines(group, seen) or "every rank has arrived"
    visible = set(group.topology.local_ranks if group.board is not None else ())
    others = [r for r in (peers or range(group.size)) if r != group.rank]
    far = set(others) - visible
    if len(others) > MOST_ASKED or not group.threads:
        seen_here = [_lines(group, seen)] if seen else []
        unseen = f"{len(far)} ranks are on other hosts and cannot be seen from here"
        return "; ".join([*seen_here, unseen])
    asked = others if peers is None else sorted(far)
    grace_s = min(GRACE_S, timeout_s)
    answers = group.rollcall.ask(asked, group.presence(), grace_s)
    if peers is None:
        linger(grace_s)  # the others have begun to ask a moment later
    for rank in sorted(far & answers.keys()):
        seen.update({r: s for r, s in answers[rank].sightings.items() if r in far})
        if peers is not None or answers[rank].sequence != group.sequence:
            seen[rank] = f"is in {answers[rank].doing}"
    silent = far - answers.keys() - seen.keys()
    parts = [_lines(group, seen)] if seen else []
    for host, name in enumerate(group.topology.hosts):
        ranks = [r for r in sorted(silent) if group.topology.host_of[r] == host]
        if ranks:
            who = ", ".join(group.called(rank) for rank in ranks[:MOST_NAMED])
            if len(ranks) > MOST_NAMED:
                who += f" and {len(ranks) - MOST_NAMED} more"
            parts.append(f"no answer from {who} on {name}: busy, dead, or cut off")
    return "; ".join(parts) or "every rank has arrived"


def _lines(group: Group, seen: dict[int, str]) -> str:
    return "; ".join(f"{group.called(rank)} {seen[rank]}" for rank in sorted(seen))
