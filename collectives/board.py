"""One line per local rank: which call it has reached, and what it is doing.

The board is the first thing that every call touches. Posting one's word and waiting
for the same word from everybody else is at once the hand-over that says "all have
arrived" and the check that all make the same call. When something goes wrong it is
also where the others can read what a silent rank was last seen doing.

A line has a single writer. What belongs to one call alternates between two slots: a
rank may post call n + 1 while a slow peer still reads call n, but it cannot post n + 2
before everybody has posted n + 1, hence has read n.

Inside a call that works in shared memory a second, plain counter says how many
*hand-overs* a rank has come to. It has the other half of the line, so that a rank which
waits for the one does not disturb who writes the other. At 64 ranks a host and more a
tree, or a counter per NUMA node, would take its place: `hand_over` is all that knows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from collectives.fence import fence

LINE_BYTES = 256
LINE_WORDS = LINE_BYTES // 8
EVEN, ODD, SEQUENCE, STATE, SINCE_NS, CALL, MEMBER = range(7)
STEP = 16  # in the second half; cycles.py uses the rest of the first
WINDOW = 17
"""Where in the arena this rank's part of the group's window lies; -1: nowhere."""
SOURCE, TARGET, RESULT, FIRST, SECOND = range(18, 23)
"""What ranks tell each other inside a call, after they have agreed on it: where input
and results lie, and two words for whatever else there is to tell. Between two uses of
one there are two hand-overs."""
NEWS = 23
"""Whether a rank has news of its registered arrays on a device (exported.py)."""
ROUNDS = 24
"""How many rounds a call takes; two words, used in turn."""
RIVAL = 26
"""Which rival shall run a call (racing.py); two words, used in turn."""
TOOK = 28
"""How many nanoseconds the latest race took on this rank; two words, used in turn."""
PROCESS = 30
"""The rank's process, as it is called in its own container."""
ARRIVED = 31
"""At how many agreements across hosts this rank has arrived; on the first member twice
as much, plus one where the latest one found that all words are the same."""

Looks = tuple[int, Callable[[], object] | None]
"""How often to look again before giving up, and what to do in between."""
ONCE: Looks = (0, None)

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
    "probe",
    "open_gpus",
    "warm_up",
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
        self._lines = [line * LINE_WORDS for line in range(self.lines)]
        self._step = 0
        self._words[self._base + PROCESS] = os.getpid()
        self._words[self._base + MEMBER] = number + 1  # 0: is not here yet
        self.set_state(State.USER)

    def post(self, sequence: int, call: int, word: int) -> None:
        """Announce call number `sequence` to everybody; `call` indexes `CALLS`."""
        words, base = self._words, self._base
        words[base + SINCE_NS] = time.monotonic_ns()
        words[base + CALL] = call
        words[base + STATE] = 2  # State.CALL; the enum costs more than the store
        if fence is not None:
            fence()
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

    def all_here(self, sequence: int) -> bool:
        """Tell whether every other member has reached call `sequence`."""
        words = self._words
        return all(words[line + SEQUENCE] >= sequence for _, line in self._others)

    def same(self, sequence: int, word: int, looks: Looks = ONCE) -> bool:
        """Tell whether every other member has posted this word for `sequence`.

        False both when one is late, after some further looks, and when one differs.
        """
        words, slot = self._words, sequence & 1
        left, pause = looks
        for _, line in self._others:
            place = line + slot
            while words[place] != word:
                if left <= 0:
                    return False
                left -= 1
                if pause is not None:
                    pause()
        if fence is not None:
            fence()
        return True

    def hand_over(self, looks: Looks = ONCE) -> bool:
        """Come to the next hand-over; tell whether everybody else has.

        What this rank has written before is seen by those who have come to it after.
        """
        self._step += 1
        if fence is not None:
            fence()
        self._words[self._base + STEP] = self._step
        return self.handed_over(looks)

    def withdraw(self) -> None:
        """Take back that this rank has come to its latest hand-over.

        Who comes to it later must not believe that this rank's memory is as it was.
        """
        self._words[self._base + STEP] = self._step - 1

    def handed_over(self, looks: Looks = ONCE) -> bool:
        """Tell, after some further looks, whether all have come to the hand-over."""
        words, step = self._words, self._step
        left, pause = looks
        for _, line in self._others:
            place = line + STEP
            while words[place] < step:
                if left <= 0:
                    return False
                left -= 1
                if pause is not None:
                    pause()
        if fence is not None:
            fence()
        return True

    def arrive(self, number: int) -> None:
        """Come to agreement `number` across hosts; see `ARRIVED`."""
        if fence is not None:
            fence()
        self._words[self._base + ARRIVED] = number

    def all_arrived(self, number: int) -> bool:
        """Tell whether every other member has come to agreement `number`."""
        words = self._words
        for _, line in self._others:
            if words[line + ARRIVED] < number:
                return False
        if fence is not None:
            fence()
        return True

    def verdict(self, number: int) -> bool:
        """Tell whether the first member has said how agreement `number` ended."""
        if self._words[ARRIVED] < 2 * number:
            return False
        if fence is not None:
            fence()
        return True

    def agreed(self) -> bool:
        """Tell how the latest agreement ended, once there is a verdict."""
        return bool(self._words[ARRIVED] & 1)

    def write(self, word: int, value: int) -> None:
        """Write one word of this rank's line; to be read after the next hand-over."""
        self._words[self._base + word] = value

    def read(self, word: int) -> list[int]:
        """Return one word of every member's line."""
        words = self._words
        return [words[line + word] for line in self._lines]

    def read_first(self, word: int) -> int:
        """Return one word of the first member's line."""
        return self._words[word]

    def back_to_user(self) -> None:
        """Say that the call is over."""
        self._words[self._base + STATE] = 1  # State.USER

    def set_state(self, state: State) -> None:
        """Say what this rank does from now on."""
        self._words[self._base + SINCE_NS] = time.monotonic_ns()
        self._words[self._base + STATE] = state

    def late(self, sequence: int) -> list[int]:
        """Return the members that have not reached call `sequence`."""
        words = self._words
        return [
            member for member, line in self._others if words[line + SEQUENCE] < sequence
        ]

    def behind(self) -> list[int]:
        """Return the members that have not come to this rank's latest hand-over."""
        words, step = self._words, self._step
        return [member for member, line in self._others if words[line + STEP] < step]

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
