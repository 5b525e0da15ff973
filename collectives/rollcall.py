"""Who is still there, on hosts that cannot be seen: ranks ask each other by messages.

On one host the board tells what every rank is doing. Across hosts a rank whose deadline
has passed asks the others. All who wait in a call of the group answer within
milliseconds, with the call they are in and what they see of late ranks on their own
host; whoever computes, is stopped or dead, or is cut off does not answer.

To be asked also says that the asker has given up its call, so that nobody waits for it
any longer: all ranks of the call find out, and report, at about the same time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from collectives.kernels import Array
from collectives.transport import Messages, Pending

QUESTION_TAG, ANSWER_TAG = 0x7100, 0x7101
ANSWER_BYTES = 512
PAUSE_S = 0.005


@dataclass(frozen=True)
class Presence:
    """What a rank says of itself when it is asked."""

    sequence: int
    """The call of all members that it is in; -1 for none."""
    doing: str
    sightings: dict[int, str] = field(default_factory=dict)
    """What it sees of late ranks on its own host."""

    def pack(self) -> Array:
        """Return it as bytes for a message, with as many sightings as fit."""
        for count in range(len(self.sightings), -1, -1):
            some = dict(list(self.sightings.items())[:count])
            data = json.dumps([self.sequence, self.doing, some]).encode()
            if len(data) <= ANSWER_BYTES:
                break
        return np.frombuffer(data.ljust(ANSWER_BYTES), np.uint8)

    @staticmethod
    def unpack(message: Array) -> Presence:
        """Return what `pack` has packed."""
        sequence, doing, seen = json.loads(message.tobytes())
        return Presence(sequence, doing, {int(rank): seen[rank] for rank in seen})


class RollCall:
    """One rank's part: to answer, and to ask."""

    def __init__(self, messages: Messages) -> None:
        """Use `messages`; nothing is sent before somebody asks."""
        self._messages = messages
        self._gave_up: set[int] = set()
        """The ranks that have given up the call that this rank is in."""
        self._questions: list[tuple[int, Array, Pending]] = []
        self._kept: list[tuple[Pending, Array]] = []
        """What the transport may still read or write."""

    def look(self, presence: Callable[[], Presence]) -> int:
        """Answer all who ask; return a rank that has given up this call, or -1.

        Does not block. A rank has given up a call for good: it breaks the group.
        """
        messages = self._messages
        while (peer := messages.arrived(QUESTION_TAG)) >= 0:
            room = np.empty(8, np.uint8)
            pending = messages.receive(peer, room, QUESTION_TAG)
            self._questions.append((peer, room, pending))
            if not pending.done():
                break
        for question in [one for one in self._questions if one[2].done()]:
            self._questions.remove(question)
            (peer, room, _), mine = question, presence()
            self._send(peer, mine.pack(), ANSWER_TAG)
            if int(room.view(np.int64)[0]) == mine.sequence >= 0:
                self._gave_up.add(peer)
        return min(self._gave_up, default=-1)

    def ask(
        self, ranks: Iterable[int], presence: Presence, grace_s: float
    ) -> dict[int, Presence]:
        """Ask `ranks`; return the answers of those that are there, after `grace_s`.

        Returns before that only when all have answered and do not need this rank any
        more, having given up the call themselves: until then it answers them.
        """
        question = np.array([presence.sequence], np.int64).view(np.uint8)
        posted: dict[int, tuple[Pending, Array]] = {}
        for peer in ranks:
            room = np.empty(ANSWER_BYTES, np.uint8)
            pending = self._messages.receive(peer, room, ANSWER_TAG)
            posted[peer] = pending, room
            self._send(peer, question, QUESTION_TAG)
        self._kept += posted.values()
        answers: dict[int, Presence] = {}
        dependent = set(posted) if presence.sequence >= 0 else set()
        end = time.monotonic() + grace_s
        while True:
            self.look(lambda: presence)
            for peer in [peer for peer in posted if posted[peer][0].done()]:
                answers[peer] = Presence.unpack(posted.pop(peer)[1])
            settled = not posted and dependent <= self._gave_up
            if settled or time.monotonic() > end:
                return answers
            time.sleep(PAUSE_S)

    def _send(self, peer: int, data: Array, tag: int) -> None:
        self._kept.append((self._messages.send(peer, data, tag), data))
