"""Where the ranks part: the first call of a group that not all of them made alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collectives.recorder import short_list
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
    """How long it was in the call until that failed or its file was written; for an
    absent rank, how long its last call was over when the last file was written."""
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
    background = frozenset[str]().union(*(dump.background for dump in dumps))
    return [
        _view(_History(key, groups[key], dumps), key in background, now_ns)
        for key in sorted(groups, key=lambda key: (-len(groups[key]), groups[key]))
    ]


class _History:
    """The calls that all members of a group are to make, as far as files tell."""

    def __init__(self, key: str, ranks: tuple[int, ...], dumps: Sequence[Dump]) -> None:
        self.key = key
        self.ranks = ranks
        self.dumps = {dump.rank: dump for dump in dumps if dump.rank in ranks}
        self.latest_ns = max(dump.written_ns for dump in self.dumps.values())
        self.made = {
            rank: {
                call.sequence: call
                for call in dump.calls
                if call.group == key and call.peers is None
            }
            for rank, dump in self.dumps.items()
        }

    def numbers(self) -> list[int]:
        """Return the numbers for which every file would show the call."""
        forgetful = [rank for rank in self.dumps if not self.dumps[rank].complete]
        first = max((min(self.made[r], default=0) for r in forgetful), default=0)
        return sorted({n for calls in self.made.values() for n in calls if n >= first})

    def at(self, sequence: int) -> dict[int, Call]:
        """Return the calls of that number, by rank."""
        return {
            rank: calls[sequence]
            for rank, calls in self.made.items()
            if sequence in calls
        }

    def would_tell(self, rank: int) -> bool:
        """Tell whether a rank's file would show its calls on this group."""
        return rank in self.dumps and (
            self.dumps[rank].complete or bool(self.made[rank])
        )

    def row(self, rank: int, sequence: int) -> Row:
        """Return where a rank is with respect to a call."""
        if not self.would_tell(rank):
            unknown = "forgotten" if rank in self.dumps else "no file"
            return Row(rank, unknown, "", 0.0, "")
        dump, calls = self.dumps[rank], self.made[rank]
        if sequence in calls:
            call = calls[sequence]
            took = _seconds(call, dump)
            return Row(rank, call.state, call.text, took, call.site, call.why)
        before = [number for number in calls if number < sequence]
        elsewhere = self._elsewhere(dump)
        if not before:
            return Row(rank, "absent", "no call before", 0.0, "", meanwhile=elsewhere)
        last = calls[max(before)]
        ago = (self.latest_ns - (last.end_ns or last.start_ns)) / 1e9
        after = f"after {last.name}"
        return Row(rank, "absent", after, ago, last.site, meanwhile=elsewhere)

    def _elsewhere(self, dump: Dump) -> str:
        """Return what a rank is in, if that is another group's call."""
        call = dump.calls[-1] if dump.calls else None
        if call is None or call.state == "done":
            return ""
        if call.group == self.key and call.peers is None:
            return ""
        group = f"group {short_list(dump.groups[call.group])}"
        took = _seconds(call, dump)
        return f"{call.state} {call.name} of {group} at {call.site}, {took:.2f} s"


def _view(history: _History, background: bool, now_ns: int) -> GroupView:
    common = None
    for sequence in history.numbers():
        at = history.at(sequence)
        behind = [rank for rank in history.ranks if rank not in at]
        missing = [rank for rank in behind if history.would_tell(rank)]
        diverges = _parted(at, missing, history.dumps, now_ns)
        done = any(call.state == "done" for call in at.values())
        if diverges or (missing and not done):
            rows = [history.row(rank, sequence) for rank in history.ranks]
            return GroupView(
                history.ranks,
                background,
                common,
                diverges,
                sequence,
                rows,
                sorted(at),
                behind,
            )
        common = history.row(min(at), sequence)
    return GroupView(history.ranks, background, common)


def _parted(
    at: Mapping[int, Call],
    missing: Sequence[int],
    dumps: Mapping[int, Dump],
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
    late = any(_seconds(at[rank], dumps[rank]) * 1e9 > LATE_NS for rank in at)
    killed = any(now_ns - dumps[rank].written_ns > KILLED_NS for rank in at)
    return bool(missing) and ("failed" in states or late or killed)


def _differ(one: Call, other: Call) -> bool:
    """Tell whether two calls differ; one that has only begun has but its name."""
    if one.call != other.call:
        return True
    return bool(one.fields and other.fields) and one.fields != other.fields


def _seconds(call: Call, dump: Dump) -> float:
    return ((call.end_ns or dump.written_ns) - call.start_ns) / 1e9
