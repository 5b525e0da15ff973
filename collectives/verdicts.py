"""From disagreement, silence or death to the exception that every rank raises."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace

from collectives.algorithms.small import all_gather_bytes
from collectives.descriptor import Descriptor, difference
from collectives.errors import CollectiveTimeoutError, MismatchError, PeerFailedError
from collectives.group import Group
from collectives.missing import missing
from collectives.options import Options
from collectives.waiting import PeerLost


def mismatch(group: Group, mine: Descriptor, options: Options) -> MismatchError:
    """Let all ranks tell what they called; return what each of them must raise.

    The ranks have agreed that they disagree, so all of them get here.
    """
    told = replace(mine, sequence=group.sequence, options=options.shared)
    texts = all_gather_bytes(group, pickle.dumps(told), options.timeout_s)
    descriptors = [pickle.loads(text) for text in texts]
    return MismatchError(describe_mismatch(group.sequence, descriptors))


def describe_mismatch(sequence: int, descriptors: Sequence[Descriptor]) -> str:
    """Return a text that names the differing field, its values and their ranks."""
    found = difference(descriptors)
    if found is None:
        return f"call #{sequence}: the ranks disagreed, but describe the same call"
    field, ranks_of = found
    lines = [f"call #{sequence}: the ranks disagree on {field}"]
    for ranks in ranks_of.values():
        lines.append(f"{_ranks(ranks)}: {_call(field, descriptors[ranks[0]])}")
    return "; ".join(lines)


def describe_lists(lists: Mapping[int, Sequence[int]]) -> str:
    """Return which ranks gave which list of members, the same whoever tells it."""
    ranks_of: dict[tuple[int, ...], list[int]] = {}
    for rank in sorted(lists):
        ranks_of.setdefault(tuple(lists[rank]), []).append(rank)
    told = [f"{_ranks(who)}: {list(members)}" for members, who in ranks_of.items()]
    return "the ranks disagree on the members of a group; " + "; ".join(told)


def _call(field: str, descriptor: Descriptor) -> str:
    """Return a descriptor in words, with what it says about `field` in them."""
    if field == "sequence":
        return f"{descriptor} as call #{descriptor.sequence}"
    if field == "options":
        return f"{descriptor} under {descriptor.options}"
    return str(descriptor)


def silence(
    group: Group,
    descriptor: Descriptor,
    timeout_s: float,
    peers: Sequence[int] | None = None,
    gave_up: int = -1,
) -> CollectiveTimeoutError:
    """Return the error for a deadline that passed, and mark the group as broken.

    `peers` are the ranks that the call was about, where those are not all; `gave_up` is
    the rank whose deadline it was, where it was not this one's.
    """
    what = f"made no progress for {timeout_s:g} s"
    if gave_up >= 0:
        what = f"has been given up by {group.called(gave_up)}, whose deadline passed"
    who = missing(group, timeout_s, peers)
    text = f"rank {group.rank}: {descriptor} #{group.sequence} {what}: {who}"
    group.broken = text
    return CollectiveTimeoutError(text)


def death(group: Group, descriptor: Descriptor, lost: PeerLost) -> PeerFailedError:
    """Return the error for a peer that is dead or has left; marks the group broken."""
    text = (
        f"rank {group.rank}: {descriptor} #{group.sequence} cannot finish: "
        f"rank {lost.rank} {lost.what}"
    )
    group.broken = text
    return PeerFailedError(text)


def _ranks(ranks: Sequence[int]) -> str:
    """Return `rank 3` or `ranks 0 1 2 …`, short whatever the number."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = " ".join(map(str, ranks[:8]))
    return f"ranks {shown}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
