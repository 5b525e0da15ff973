"""Where the ranks part: the first call of a group that not all of them made alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collectives.trace.files import Call, Dump

# A rank that had waited less than this when its file was written waited as usual.
LATE_NS = 1_000_000_000

# A rank inside a call writes often. If its file is older than this, it has been killed.
KILLED_NS = 5_000_000_000

# These happen only when ranks have parted; any other error is a rank's own affair.
PARTED = ("CollectiveTimeoutError", "PeerFailedError")


@dataclass(frozen=True)
class Row:
    """Where one rank is with respect to the call at which the ranks part."""

    rank: int
    state: str
    """State of the call, or `absent`, or why it is not known."""
    call: str
    seconds: float
    """How long it was in the call when it failed or its file was written; for an absent
    rank, how long the call before had been over."""
    site: str
    why: str = ""
    meanwhile: str = ""
    """What the rank does in another group."""


@dataclass(frozen=True)
class GroupView:
    """One group: how far its members came together, and where they part."""

    ranks: tuple[int, ...]
    background: bool
    common: Row | None = None
    """The last call that all made, on one of the ranks."""
    diverges: bool = False
    sequence: int = 0
    """The call at which they part, or which not all have reached yet; 0 without one."""
    rows: list[Row] = field(default_factory=list)
    ahead: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)


def compare(dumps: Sequence[Dump], now_ns: int) -> list[GroupView]:
    """Return a view, at a time, of every group that the ranks made calls on."""
    groups: dict[str, tuple[int, ...]] = {}
    for dump in dumps:
        groups.update(dump.groups)
    by_size = sorted(groups, key=lambda key: (-len(groups[key]), groups[key]))
    background = frozenset[str]().union(*(dump.background for dump in dumps))
    return [
        _view(key, groups[key], key in background, dumps, now_ns) for key in by_size
    ]


def _view(
    key: str,
    ranks: tuple[int, ...],
    background: bool,
    dumps: Sequence[Dump],
    now_ns: int,
) -> GroupView:
    here = {dump.rank: dump for dump in dumps if dump.rank in ranks}
    made = {rank: _numbered(here[rank], key) for rank in here}
    common = None
    for sequence in _in_question(here, made):
        at = {rank: made[rank][sequence] for rank in made if sequence in made[rank]}
        missing = [r for r in here if r not in at and _reaches(r, here, made)]
        done = any(call.state == "done" for call in at.values())
        diverges = _parted(at, missing, here, now_ns)
        if diverges or (missing and not done):
            rows = [_row(rank, sequence, key, here, made) for rank in ranks]
            return GroupView(
                ranks,
                background,
                common,
                diverges,
                sequence,
                rows,
                ahead=sorted(at),
                behind=[rank for rank in ranks if rank not in at],
            )
        rank, call = next(iter(at.items()))
        common = Row(rank, call.state, call.text, _seconds(call, here[rank]), call.site)
    return GroupView(ranks, background, common)


def _numbered(dump: Dump, key: str) -> dict[int, Call]:
    """Return the calls of all members that one of them made, by number."""
    return {
        call.sequence: call
        for call in dump.calls
        if call.group == key and call.peers is None
    }


def _in_question(
    here: Mapping[int, Dump], made: Mapping[int, dict[int, Call]]
) -> list[int]:
    """Return the numbers for which every rank would have a call if it had made one."""
    forgotten = [min(made[r], default=0) for r in here if not here[r].complete]
    first = max(forgotten, default=0)
    return sorted({n for calls in made.values() for n in calls if n >= first})


def _parted(
    at: Mapping[int, Call],
    missing: Sequence[int],
    here: Mapping[int, Dump],
    now_ns: int,
) -> bool:
    """Tell whether it is sure that not all made this call alike."""
    calls = list(at.values())
    if any(_differ(calls[0], call) for call in calls[1:]):
        return True
    if any(call.state == "failed" and call.why.startswith(PARTED) for call in calls):
        return True
    states = {call.state for call in calls}
    if "done" in states:  # then all had arrived, and some files are only older
        return "failed" in states
    late = any(_seconds(at[rank], here[rank]) * 1e9 > LATE_NS for rank in at)
    killed = any(now_ns - here[rank].written_ns > KILLED_NS for rank in at)
    return bool(missing) and ("failed" in states or late or killed)


def _differ(one: Call, other: Call) -> bool:
    """Tell whether two calls differ; one that has only begun has but its name."""
    if one.call != other.call:
        return True
    return bool(one.fields and other.fields) and one.fields != other.fields


def _reaches(
    rank: int, here: Mapping[int, Dump], made: Mapping[int, dict[int, Call]]
) -> bool:
    """Tell whether a rank's file would show a call on this group that it has made."""
    return here[rank].complete or bool(made[rank])


def _row(
    rank: int,
    sequence: int,
    key: str,
    here: Mapping[int, Dump],
    made: Mapping[int, dict[int, Call]],
) -> Row:
    if rank not in here:
        return Row(rank, "no file", "", 0.0, "")
    dump = here[rank]
    if not _reaches(rank, here, made):
        return Row(rank, "forgotten", "", 0.0, "")
    if sequence in made[rank]:
        call = made[rank][sequence]
        return Row(
            rank, call.state, call.text, _seconds(call, dump), call.site, call.why
        )
    before = [number for number in made[rank] if number < sequence]
    last = made[rank][max(before)] if before else None
    other = dump.calls[-1] if dump.calls else None
    meanwhile = ""
    if other is not None and other.group != key and other.state != "done":
        ranks = ", ".join(map(str, dump.groups[other.group]))
        meanwhile = (
            f"{other.state} {other.name} of group [{ranks}] at {other.site}, "
            f"{_seconds(other, dump):.1f} s"
        )
    if last is None:
        return Row(rank, "absent", "no call before", 0.0, "", meanwhile=meanwhile)
    since = (dump.written_ns - (last.end_ns or last.start_ns)) / 1e9
    return Row(rank, "absent", f"after {last.name}", since, last.site, "", meanwhile)


def _seconds(call: Call, dump: Dump) -> float:
    return ((call.end_ns or dump.written_ns) - call.start_ns) / 1e9
