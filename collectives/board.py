"""One line per local rank: which call it has reached, and what it is doing.

The board is the first thing that every call touches. Posting one's word and waiting
for the same word from everybody else is at once the hand-over that says "all have
arrived" and the check that all make the same call. When something goes wrong it is
also where the others can read what a silent rank was last seen doing.

A line is 128 bytes and has a single writer. Words alternate between two slots: a rank
may post call n + 1 while a slow peer still reads call n, but it cannot post n + 2
before everybody has posted n + 1, hence has read n.

x86 keeps the order of stores, and so the word is written after what it announces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

LINE_BYTES = 128
LINE_WORDS = LINE_BYTES // 8
EVEN, ODD, SEQUENCE, STATE, SINCE_NS, CALL, MEMBER = range(7)

CALLS = (
    "",
    "barrier",
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "all_reduce_many",
    "broadcast_many",
    "reduce_scatter",
    "scan",
    "exclusive_scan",
    "gather",
    "scatter",
    "all_to_all",
    "broadcast_object",
    "all_gather_object",
    "gather_object",
    "exchange",
    "group",
    "split",
    "join",
    "joined",
    "twin",
)


class State(IntEnum):
    """What a rank is doing, as seen from outside."""

    ABSENT = 0
    USER = 1
    CALL = 2
    LEFT = 3


PHRASES = {
    State.ABSENT: "has not started",
    State.USER: "has been in user code for {seconds:.1f} s{after}",
    State.CALL: "has been in {call} #{sequence} for {seconds:.1f} s",
    State.LEFT: "left the job {seconds:.1f} s ago{after}",
}


@dataclass(frozen=True)
class Sighting:
    """What a rank was last seen doing."""

    state: State
    call: str
    sequence: int
    seconds: float

    def __str__(self) -> str:
        """Return it in words: `has been in user code for 4.0 s, after reduce #7`."""
        after = f", after {self.call} #{self.sequence}" if self.sequence else ""
        return PHRASES[self.state].format(
            call=self.call, sequence=self.sequence, seconds=self.seconds, after=after
        )


class Board:
    """The lines of the ranks of one group on one host."""

    def __init__(
        self,
        memory: memoryview,
        members: Sequence[int],
        rank: int,
        *,
        place: int = -1,
        number: int = 0,
    ) -> None:
        """Use `memory` (`board_bytes(len(members))`) for `members`, ranks of the group.

        Args:
            memory: zeroed by its owner before any member gets here.
            members: the ranks, in the same order on every one of them.
            rank: this rank, one of `members`.
            place: where in the arena the memory lies; -1 if it is not in one.
            number: this rank's number in the job, for readers from other groups.
        """
        self.place = place
        self.lines = len(members)
        self._words = memory.cast("q")
        self._members = tuple(members)
        self._base = self._members.index(rank) * LINE_WORDS
        self._others = tuple(
            (member, line * LINE_WORDS)
            for line, member in enumerate(self._members)
            if member != rank
        )
        self._words[self._base + MEMBER] = number + 1  # 0: is not here yet
        self.set_state(State.USER)

    def post(self, sequence: int, call: int, word: int) -> None:
        """Announce call number `sequence` to everybody; `call` indexes `CALLS`."""
        words, base = self._words, self._base
        words[base + SINCE_NS] = time.monotonic_ns()
        words[base + CALL] = call
        words[base + STATE] = 2  # State.CALL; the enum costs more than the store
        words[base + EVEN + (sequence & 1)] = word
        words[base + SEQUENCE] = sequence

    def take_back(self, sequence: int) -> None:
        """Undo the latest `post`; only while somebody is late for that call."""
        words, base = self._words, self._base
        words[base + EVEN + (sequence & 1)] = -1  # no word is negative
        words[base + SEQUENCE] = sequence - 1

    def show(self, call: int) -> None:
        """Say that this rank is in a call that not everybody makes."""
        words, base = self._words, self._base
        words[base + SINCE_NS] = time.monotonic_ns()
        words[base + CALL] = call
        words[base + STATE] = State.CALL

    def arrived(self, sequence: int) -> Callable[[], bool]:
        """Return a condition: every other member has reached call `sequence`."""
        words = self._words
        waiting = [line + SEQUENCE for _, line in self._others]

        def ready() -> bool:
            while waiting:
                if words[waiting[-1]] < sequence:
                    return False
                waiting.pop()
            return True

        return ready

    def same(self, sequence: int, word: int) -> bool:
        """Tell whether every other member has posted this word for `sequence`.

        False both when one is late and when one differs; see `arrived`.
        """
        words, slot = self._words, sequence & 1
        for _, line in self._others:  # noqa: SIM110 - a generator takes twice as long
            if words[line + slot] != word:
                return False
        return True

    def back_to_user(self) -> None:
        """Say that the call is over."""
        self._words[self._base + STATE] = 1  # State.USER

    def set_state(self, state: State) -> None:
        """Say what this rank does from now on."""
        self._words[self._base + SINCE_NS] = time.monotonic_ns()
        self._words[self._base + STATE] = state

    def late(self, sequence: int) -> list[int]:
        """Return the members that have not reached call `sequence`."""
        return [
            member
            for member, line in self._others
            if self._words[line + SEQUENCE] < sequence
        ]

    def seen(self, member: int) -> Sighting:
        """Return what a member was last seen doing."""
        line = self._members.index(member) * LINE_WORDS
        words = self._words
        return Sighting(
            state=State(words[line + STATE]),
            call=CALLS[words[line + CALL]],
            sequence=words[line + SEQUENCE],
            seconds=(time.monotonic_ns() - words[line + SINCE_NS]) / 1e9,
        )

    def close(self) -> None:
        """Let go of the memory, so that the arena can be closed."""
        self._words.release()


def board_bytes(members: int) -> int:
    """Return the size of a board."""
    return members * LINE_BYTES
