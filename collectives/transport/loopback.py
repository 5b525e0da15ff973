"""Messages between ranks that are threads of one process: for tests, and for one rank.

    def body(comm): ...
    results = run_threads(4, body_with_messages)

A send copies its bytes into the receiver's mailbox and is done at once.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from collectives.transport import Buffer, Finished, Pending

T = TypeVar("T")
Context = tuple[object, ...]
Key = tuple[Context, int, int, int]
"""Context, receiver, sender, tag."""


class Mailboxes:
    """The state that the ranks of one loopback world share."""

    def __init__(self) -> None:
        """Start empty."""
        self.lock = threading.Lock()
        self.arrived: dict[Key, deque[bytes]] = defaultdict(deque)


class Loopback:
    """One rank's end of a loopback world."""

    def __init__(
        self, mailboxes: Mailboxes, rank: int, size: int, context: Context = ()
    ) -> None:
        """Be `rank` of `size` ranks that share `mailboxes`.

        `context` keeps the messages of derived transports apart.
        """
        self._mailboxes = mailboxes
        self._context = context
        self._derived: Counter[tuple[int, ...]] = Counter()
        self.rank = rank
        self.size = size

    def send(self, peer: int, data: Buffer, tag: int) -> Pending:
        """Put a copy of `data` into the peer's mailbox."""
        with self._mailboxes.lock:
            key = (self._context, peer, self.rank, tag)
            self._mailboxes.arrived[key].append(bytes(data))
        return Finished()

    def receive(self, peer: int, data: Buffer, tag: int) -> Pending:
        """Take the peer's next message when it is there."""
        key = (self._context, self.rank, peer, tag)
        return _Receive(self._mailboxes, key, memoryview(data))

    def arrived(self, tag: int) -> int:
        """Return a rank whose message with `tag` waits to be received, or -1."""
        with self._mailboxes.lock:
            for (context, receiver, sender, theirs), queue in list(
                self._mailboxes.arrived.items()
            ):
                mine = (context, receiver, theirs) == (self._context, self.rank, tag)
                if mine and queue:
                    return sender
        return -1

    def derive(self, ranks: Sequence[int]) -> Loopback:
        """Return an end in a world of some of the ranks."""
        members = tuple(ranks)
        self._derived[members] += 1
        context = (*self._context, members, self._derived[members])
        rank = members.index(self.rank)
        return Loopback(self._mailboxes, rank, len(members), context)

    def close(self) -> None:
        """Do nothing: the mailboxes go with their last user."""


class _Receive:
    def __init__(self, mailboxes: Mailboxes, key: Key, data: memoryview) -> None:
        self._mailboxes = mailboxes
        self._key = key
        self._data: memoryview | None = data

    def done(self) -> bool:
        if self._data is None:
            return True
        with self._mailboxes.lock:
            queue = self._mailboxes.arrived[self._key]
            if not queue:
                return False
            message = queue.popleft()
        if len(message) > self._data.nbytes:
            raise AssertionError(
                f"rank {self._key[1]} got {len(message)} bytes from rank "
                f"{self._key[2]}; wanted {self._data.nbytes} at most"
            )
        self._data[: len(message)] = message
        self._data = None
        return True


def alone() -> Loopback:
    """Return the transport of a world of one rank."""
    return Loopback(Mailboxes(), 0, 1)


def run_threads(size: int, body: Callable[[Loopback], T]) -> list[T]:
    """Run `body(messages)` on `size` threads, one a rank; return the results by rank.

    Raises:
        BaseException: what the lowest failing rank raised.
    """
    mailboxes = Mailboxes()
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def one_rank(rank: int) -> None:
        try:
            results[rank] = body(Loopback(mailboxes, rank, size))
        except BaseException as error:
            errors[rank] = error

    threads = [
        threading.Thread(target=one_rank, args=(rank,), daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if error is not None:
            raise error
    return results
