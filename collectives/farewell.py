"""How ranks tell each other that they have left, and will make no further call."""

from __future__ import annotations

import numpy as np

from collectives.schedules import dissemination
from collectives.transport import Messages, Pending

LEAVE_TAGS = 0x7000


class Farewells:
    """Notes by which ranks say that they have left, spread by dissemination.

    A note carries the lowest sequence number among those it speaks for. Receives are
    posted from the beginning, so that a rank inside a call can look without blocking
    whether somebody has left before making that call.
    """

    def __init__(self, messages: Messages) -> None:
        """Post the receives of the ranks that `messages` connects."""
        self._messages = messages
        self.rounds = dissemination(messages.rank, messages.size)
        self._incoming = np.zeros((len(self.rounds), 8), np.uint8)
        self._outgoing = np.zeros((len(self.rounds), 8), np.uint8)
        self._sent: list[Pending] = []
        self._posted = [
            messages.receive(source, self._incoming[step], LEAVE_TAGS + step)
            for step, (_, source) in enumerate(self.rounds)
        ]

    def send(self, step: int, sequence: int) -> None:
        """Send round `step`: the lowest number among mine and what I have heard."""
        heard = [int(note.view(np.int64)[0]) for note in self._incoming[:step]]
        self._outgoing[step].view(np.int64)[0] = min([sequence, *heard])
        target, _ = self.rounds[step]
        self._sent.append(
            self._messages.send(target, self._outgoing[step], LEAVE_TAGS + step)
        )

    def received(self, step: int) -> bool:
        """Tell whether the note of round `step` is here and mine is gone."""
        return self._posted[step].done() and self._sent[step].done()

    def heard(self) -> tuple[int, int]:
        """Return a rank that has left and its last call, or (-1, 0)."""
        for step, pending in enumerate(self._posted):
            if pending.done():
                _, source = self.rounds[step]
                return source, int(self._incoming[step].view(np.int64)[0])
        return -1, 0
