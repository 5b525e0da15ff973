"""What moves bytes between ranks: one small Protocol, one file per transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Buffer = Any
"""A contiguous, one-dimensional array or view of bytes (uint8)."""


class Pending(Protocol):
    """One message under way."""

    def done(self) -> bool:
        """Tell, without blocking, whether the buffer may be used again."""


class Messages(Protocol):
    """Point-to-point messages between the ranks of a group.

    Messages with the same peer and tag arrive in the order in which they were sent.
    The buffer belongs to the transport until `done()`.
    """

    rank: int
    size: int

    def send(self, peer: int, data: Buffer, tag: int) -> Pending:
        """Start sending `data` to `peer`."""

    def receive(self, peer: int, data: Buffer, tag: int) -> Pending:
        """Start receiving at most `len(data)` bytes from `peer` into `data`."""

    def arrived(self, tag: int) -> int:
        """Return a rank whose message with `tag` waits to be received, or -1.

        Does not block. Only for tags on which no receives are posted ahead.
        """

    def derive(self, ranks: Sequence[int]) -> Messages:
        """Return a transport of its own for some of the ranks, in that order.

        Collective over `ranks`; may block.

        Raises:
            ExhaustedError: there is nothing left to make it of, on this rank at least.
        """

    def close(self) -> None:
        """Give up the transport's resources; may be called twice."""


class Finished:
    """A message that needs no waiting."""

    def done(self) -> bool:
        """Return True."""
        return True
