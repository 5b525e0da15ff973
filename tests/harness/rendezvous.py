"""A loopback that takes a message's bytes as late as MPI may.

Where the plain loopback copies at once, a send here is done only when its receiver has
looked; until then it is the sender's own memory that is read, as MPI does with large
messages. Whoever overwrites a buffer too early sends wrong bytes, always and not once
in a thousand runs.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from collectives.transport import Messages, Pending


class _Send:
    def __init__(self, data: Any, transport: "Rendezvous") -> None:
        self.data, self.taken, self._transport = data, False, transport

    def done(self) -> bool:
        self._transport.progress()
        return self.taken


class _Receive:
    def __init__(self, key: Any, data: Any, transport: "Rendezvous") -> None:
        self.key, self.data, self.filled = key, data, False
        self._transport = transport

    def done(self) -> bool:
        self._transport.progress()
        return self.filled


class Rendezvous:
    """One rank's end; as in MPI, whatever is polled makes all receives progress."""

    def __init__(self, shared: "_Shared", rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._shared = shared
        self._posted: list[_Receive] = []

    def send(self, peer: int, data: Any, tag: int) -> Pending:
        sending = _Send(data, self)
        with self._shared.lock:
            self._shared.offered[peer, self.rank, tag].append(sending)
        return sending

    def receive(self, peer: int, data: Any, tag: int) -> Pending:
        receiving = _Receive((self.rank, peer, tag), data, self)
        data[...] = 0xEE  # nobody may rely on what is there until it has arrived
        self._posted.append(receiving)
        return receiving

    def progress(self) -> None:
        with self._shared.lock:
            for receiving in list(self._posted):
                offered = self._shared.offered[receiving.key]
                if offered:
                    sending = offered.popleft()
                    assert len(sending.data) == len(receiving.data), receiving.key
                    np.copyto(receiving.data, sending.data)
                    sending.taken = receiving.filled = True
                    self._posted.remove(receiving)

    def arrived(self, tag: int) -> int:
        with self._shared.lock:
            for (receiver, sender, theirs), offered in self._shared.offered.items():
                if offered and (receiver, theirs) == (self.rank, tag):
                    return sender
        return -1

    def close(self) -> None:
        pass


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.offered: dict[Any, deque[_Send]] = defaultdict(deque)


def rendezvous() -> Callable[[Any], Messages]:
    """Return a `transport` for one `threads.run_ranks`."""
    shared = _Shared()
    return lambda messages: Rendezvous(shared, messages.rank, messages.size)
