"""Ranks of a host that wait for each other, each in another group: a cycle.

One rank is in a call on a group while another, which that call needs, is in a call on
the parent and needs the first. Neither group can see it alone. But the boards of all
groups of a family lie in one arena, so a rank that has waited for a while says, in its
line of the first group's board, on which board it waits; whoever knows that can read
there for whom. The rest is a graph.

A rank is *stuck* when one of those it waits for is stuck. That is certain where all of
them have been seen twice, a second apart, in the same waits, and where each of them
makes its calls from one thread and waits for nothing but others to arrive. Then all
that are stuck learn of it, take their arrival back, learn that all have done so, and
only then raise: as if nobody had made those calls. No rank of another host can be part
of it; there the deadline says what this host knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from collectives.arena import Arena
from collectives.board import (
    CALL,
    CALLS,
    LINE_WORDS,
    MEMBER,
    SEQUENCE,
    SINCE_NS,
    Board,
    board_bytes,
)
from collectives.recorder import short_list
from collectives.waiting import TimedOut, wait_until

LOOK_S = 1.0
RESOLVE_S = 10.0  # far more than the others need to look twice

# Words of a line of the first board, after those that every board has.
PLACE, LINES, CALL_NUMBER, GAVE_UP_NS, STAGE, TICKET = range(8, 14)

# How far a wait is. `OPEN`: it may end in ways that cannot be seen from here.
GAVE_UP, OPEN, CLOSED, KNOWS, TOOK_BACK = range(-1, 4)


@dataclass(frozen=True)
class Wait:
    """What one rank waits for; ranks are numbers in the job."""

    ticket: int
    stage: int
    call: str
    ranks: tuple[int, ...]
    """The members, on this host, of the group that the call is made on."""
    late: tuple[int, ...]
    """Those of them who have not arrived."""
    seconds: float

    def __str__(self) -> str:
        """Return `in barrier #3 of group [0, 1]`."""
        return f"{self.call} of group {short_list(self.ranks)}"


class Waits:
    """What the ranks of this host wait for, in all groups of a family."""

    def __init__(
        self, arena: Arena, place: int, members: Sequence[int], rank: int
    ) -> None:
        """Use the first board of a family.

        Args:
            arena: where all boards of the family lie.
            place: the offset of the first one.
            members: whose lines are on it, in order, by their numbers in the job.
            rank: which of them this is.
        """
        self._arena = arena
        self._words = arena.view(place, board_bytes(len(members))).cast("q")
        self._members = tuple(members)
        self._rank = rank
        self._mine = self._members.index(rank) * LINE_WORDS
        self._board: Board | None = None
        self._looked = 0.0
        self._seen: dict[int, Wait] = {}

    def tell(self, board: Board, sequence: int, closed: bool) -> None:
        """Say, once a wait, that this rank waits on `board` in its call `sequence`.

        `closed`: it does so until everybody on that board has arrived, or for ever.
        """
        if self._board is not None or board.place < 0:
            return
        self._board = board
        words, mine = self._words, self._mine
        ticket, words[mine + TICKET] = abs(words[mine + TICKET]) + 1, 0
        words[mine + PLACE] = board.place
        words[mine + LINES] = board.lines
        words[mine + CALL_NUMBER] = sequence
        words[mine + STAGE] = CLOSED if closed else OPEN
        words[mine + TICKET] = ticket

    def end(self, board: Board | None, gave_up: bool = False) -> None:
        """Say that the wait on `board` is over, if that was told."""
        if board is None or board is not self._board:
            return
        self._board = None
        words, mine = self._words, self._mine
        if gave_up:  # the others, who give up as well, will want to say why
            words[mine + GAVE_UP_NS] = time.monotonic_ns()
            words[mine + STAGE] = GAVE_UP
        else:
            words[mine + TICKET] = -abs(words[mine + TICKET])

    def stuck(self) -> dict[int, Wait]:
        """Return who is stuck, once it is certain that this rank is; look now and then.

        Returns:
            The stuck ranks and their waits; nothing if this rank is not among them.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return {}
        before, self._seen, self._looked = self._seen, self._read(), now
        same = {
            rank: wait
            for rank, wait in self._seen.items()
            if wait.stage >= CLOSED
            and rank in before
            and before[rank].ticket == wait.ticket
        }
        found = stuck_among(same)
        return found if self._rank in found else {}

    def take_back(self, stuck: Mapping[int, Wait], undo: Callable[[], None]) -> bool:
        """Undo this rank's call together with all that are stuck.

        Nobody undoes before all know, and nobody returns before all have undone, so
        that no later call can meet what is left of this one.

        Returns:
            Whether that was done; not if the deadline of one of them came first.
        """
        if not self._reach(KNOWS, stuck):
            self._words[self._mine + STAGE] = CLOSED
            return False
        undo()
        self._reach(TOOK_BACK, stuck)
        return True

    def _reach(self, stage: int, stuck: Mapping[int, Wait]) -> bool:
        """Go to a stage and wait for the others; tell whether all have come."""
        self._words[self._mine + STAGE] = stage
        with suppress(TimedOut):
            wait_until(
                lambda: (
                    all(self._stage(r, w) >= stage for r, w in stuck.items())
                    or any(self._stage(r, w) == GAVE_UP for r, w in stuck.items())
                ),
                timeout_s=RESOLVE_S,
                spins=0,
            )
        return all(self._stage(r, w) >= stage for r, w in stuck.items())

    def _stage(self, rank: int, wait: Wait) -> int:
        """Return the stage of a rank's wait; the last one when it is over."""
        line = self._members.index(rank) * LINE_WORDS
        over = self._words[line + TICKET] != wait.ticket
        return TOOK_BACK if over else self._words[line + STAGE]

    def elsewhere(self, rank: int) -> str:
        """Return what call, on whatever group, a rank is waiting in; empty if none."""
        waits = self._read()
        if rank not in waits:
            return ""
        wait = waits[rank]
        if wait.stage == GAVE_UP:
            text = f"gave up {wait} {wait.seconds:.1f} s ago"
        else:
            text = f"has been in {wait} for {wait.seconds:.1f} s"
        if wait.late:
            text += f", waiting for {_ranks(wait.late)}"
        return text + (": a cycle" if self._rank in _reachable(waits, rank) else "")

    def close(self) -> None:
        """Let go of the memory, so that the arena can be closed."""
        self._words.release()

    def _read(self) -> dict[int, Wait]:
        """Return what every rank of the host says that it waits for."""
        found = {}
        for line, rank in enumerate(self._members):
            words = self._words[line * LINE_WORDS : (line + 1) * LINE_WORDS]
            with words:
                ticket = words[TICKET]
                if ticket <= 0:
                    continue
                wait = self._follow(rank, words, ticket)
                if words[TICKET] == ticket:
                    found[rank] = wait
        return found

    def _follow(self, rank: int, waiting: memoryview, ticket: int) -> Wait:
        """Read the board that a rank says it waits on."""
        sequence, lines = waiting[CALL_NUMBER], waiting[LINES]
        place = waiting[PLACE]
        with (
            self._arena.view(place, board_bytes(lines)) as raw,
            raw.cast("q") as words,
        ):
            starts = range(0, lines * LINE_WORDS, LINE_WORDS)
            ranks = [words[start + MEMBER] - 1 for start in starts]
            late = [
                member
                for start, member in zip(starts, ranks, strict=True)
                if words[start + SEQUENCE] < sequence and member not in (rank, -1)
            ]
            own = ranks.index(rank) * LINE_WORDS
            call, since = CALLS[words[own + CALL]], words[own + SINCE_NS]
        if waiting[STAGE] == GAVE_UP:
            since = waiting[GAVE_UP_NS]
        return Wait(
            ticket,
            waiting[STAGE],
            f"{call} #{sequence}",
            tuple(ranks),
            tuple(late),
            (time.monotonic_ns() - since) / 1e9,
        )


def stuck_among(waits: Mapping[int, Wait]) -> dict[int, Wait]:
    """Return the waits that can never end: each needs another one of them to end."""
    stuck = dict(waits)
    while True:
        free = [rank for rank in stuck if not stuck.keys() & set(stuck[rank].late)]
        if not free:
            return stuck
        for rank in free:
            del stuck[rank]


def describe(stuck: Mapping[int, Wait]) -> str:
    """Return the cycle in words, the same whoever of the stuck ranks asks."""
    rank = min(_wanted(stuck))
    path: list[int] = []
    while rank not in path:
        path.append(rank)
        rank = min(stuck.keys() & set(stuck[rank].late))
    cycle = path[path.index(rank) :]
    start = cycle.index(min(cycle))
    cycle = cycle[start:] + cycle[:start]
    steps = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    return "the ranks wait for each other: " + "; ".join(
        f"rank {rank} is in {stuck[rank]}, waiting for rank {other}"
        for rank, other in steps
    )


def _wanted(stuck: Mapping[int, Wait]) -> set[int]:
    """Return the ranks for whom others wait, directly or not, for ever."""
    wanted = set(stuck)
    while True:
        needed = {late for rank in wanted for late in stuck[rank].late} & wanted
        if needed == wanted:
            return wanted
        wanted = needed


def _reachable(waits: Mapping[int, Wait], rank: int) -> set[int]:
    """Return all for whom a rank waits, directly or not."""
    found: set[int] = set()
    open_: list[int] = [rank]
    while open_:
        for late in waits[open_.pop()].late:
            if late not in found:
                found.add(late)
                if late in waits:
                    open_.append(late)
    return found


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {short_list(ranks)}"
