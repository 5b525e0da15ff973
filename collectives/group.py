"""The ranks of a communicator, and the state that its calls share.

A `Group` is what lies under every communicator with the same ranks, whatever their
options: the transport, the board, the sequence number, and whether it is broken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from collectives.arena import Arena
from collectives.board import Board, State
from collectives.ending import say
from collectives.errors import BrokenCommunicatorError
from collectives.kernels import Array
from collectives.schedules import dissemination
from collectives.topology import Topology
from collectives.transport import Messages, Pending
from collectives.waiting import SPINS, Liveness, PeerLost, wait_until

# The tag space (MPI promises 32,767). Data and agreement tags carry the low bits of the
# sequence number, so that leftovers of a failed call never meet a later one.
DATA_TAGS = 0x0000
AGREEMENT_TAGS = 0x4000
LEAVE_TAGS = 0x7000
SEQUENCE_BITS = 0x1FFF

WARN_S = 60.0


class Group:
    """Ranks, transport, board and the state between calls."""

    def __init__(
        self,
        messages: Messages,
        topology: Topology,
        *,
        board: Board | None = None,
        arena: Arena | None = None,
        liveness: Liveness | None = None,
        mpi: Any = None,
        native: Any = None,
    ) -> None:
        """Take over the parts; `close()` gives them up.

        Args:
            messages: transport between the members.
            topology: where they are.
            board: lines of the members on this host; None where no memory is shared.
            arena: where the board lies.
            liveness: watches the processes of this host.
            mpi: the caller's mpi4py communicator, None without MPI.
            native: the private duplicate of it, which the transport uses as well.
        """
        self.messages = messages
        self.topology = topology
        self.board = board
        self.arena = arena
        self.liveness = liveness
        self.mpi = mpi
        self.native = native
        self.rank = messages.rank
        self.size = messages.size
        self.sequence = 0
        self.broken = ""
        self.closed = False
        self.doing = ""
        self.one_board = board is not None and topology.local_size == self.size
        self.spins = SPINS if topology.cores >= topology.local_size else 0
        self._lock = threading.Lock()
        self._scratch = np.empty(0, np.uint8)
        self._warn_after_s = WARN_S
        self._farewells = _Farewells(messages)

    def enter(self, doing: str, timeout_s: float) -> None:
        """Begin a call; `exit` ends it.

        Raises:
            BrokenCommunicatorError: an earlier call failed, the communicator is closed,
                or another thread is inside a call.
        """
        if self.broken or self.closed:
            raise BrokenCommunicatorError(
                f"rank {self.rank}: this communicator cannot be used any more: "
                + (self.broken or "it was closed")
            )
        if not self._lock.acquire(blocking=False):
            raise BrokenCommunicatorError(
                f"rank {self.rank}: another thread is inside {self.doing} on this "
                "communicator; use one communicator a thread"
            )
        self._warn_after_s = min(WARN_S, timeout_s / 10)
        self.doing = doing
        self.sequence += 1

    def exit(self) -> None:
        """End the call that `enter` began."""
        if self.board is not None:
            self.board.back_to_user()
        self._lock.release()

    def wait(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Poll `ready` until it is true; see `waiting.wait_until`.

        Raises:
            TimedOut: nothing happened for `timeout_s`.
            PeerLost: a rank that this call needs is dead or has left.
        """
        if ready():
            return
        wait_until(ready, timeout_s=timeout_s, spins=self.spins, health=self._health)

    def scratch(self, nbytes: int) -> Array:
        """Return `nbytes` of memory that lasts until the end of the call."""
        if self._scratch.size < nbytes:
            self._scratch = np.empty(nbytes, np.uint8)
        return self._scratch[:nbytes]

    def absent(self) -> dict[int, str]:
        """Return the ranks that have not reached the current call, and why.

        Only ranks of this host can be seen; those of other hosts are left out.
        """
        if self.board is None:
            return {}
        return {r: str(self.board.seen(r)) for r in self.board.late(self.sequence)}

    def _health(self, waited_s: float) -> None:
        """Raise `PeerLost` when waiting is in vain; warn once when it takes long."""
        dead = self.liveness.dead() if self.liveness is not None else []
        if dead:
            raise PeerLost(dead[0], "died")
        if self.board is not None:
            for rank in self.board.late(self.sequence):
                if self.board.seen(rank).state is State.LEFT:
                    raise PeerLost(rank, str(self.board.seen(rank)))
        rank, sequence = self._farewells.heard()
        if rank >= 0 and sequence < self.sequence:
            raise PeerLost(rank, f"left the job after call #{sequence}")
        if waited_s > self._warn_after_s:
            self._warn_after_s = float("inf")
            late = [f"rank {rank} {what}" for rank, what in self.absent().items()]
            say(
                f"ringfold: rank {self.rank} has waited {waited_s:.1f} s "
                f"in {self.doing} #{self.sequence}: {'; '.join(late) or 'all are here'}"
            )

    def leave(self, patience_s: float) -> None:
        """Tell the others that this rank makes no further calls; wait for theirs.

        Afterwards nobody can be stuck in a collective that needs this rank, and MPI can
        be finalized without waiting.

        Raises:
            TimedOut: some rank did not leave within `patience_s` of polling.
            PeerLost: a rank died instead.
        """
        if self.board is not None:
            self.board.set_state(State.LEFT)
        self.doing = "leaving"
        self._warn_after_s = WARN_S
        for step in range(len(self._farewells.rounds)):
            self._farewells.send(step, self.sequence)
            wait_until(
                lambda step=step: self._farewells.received(step),  # type: ignore[misc]
                timeout_s=patience_s,
                spins=0,
                health=self._leaving_health,
            )

    def _leaving_health(self, waited_s: float) -> None:
        """Notice ranks that died, and those that wait for a call we shall not make."""
        if self.board is not None:
            seen = {rank: self.board.seen(rank) for rank in self.topology.local_ranks}
            for rank, sighting in seen.items():
                if sighting.state is State.CALL and sighting.sequence > self.sequence:
                    raise PeerLost(self.rank, f"left while rank {rank} {sighting}")
            dead = self.liveness.dead() if self.liveness is not None else []
            for rank in dead:  # one that had left has simply ended before us
                if seen[rank].state is not State.LEFT:
                    raise PeerLost(rank, "died")
        if waited_s > self._warn_after_s:
            self._warn_after_s = waited_s + WARN_S
            say(
                f"ringfold: rank {self.rank} has finished and waits, since "
                f"{waited_s:.0f} s, for others to finish"
            )

    def close(self) -> None:
        """Give up board, arena and transport; may be called twice."""
        if self.closed:
            return
        self.closed = True
        if self.liveness is not None:
            self.liveness.close()
        if self.board is not None:
            self.board.close()
        if self.arena is not None:
            self.arena.close()
        self.messages.close()


class _Farewells:
    """Notes by which ranks say that they have left, spread by dissemination.

    A note carries the lowest sequence number among those it speaks for. Receives are
    posted from the beginning, so that a rank inside a call can look without blocking
    whether somebody has left before making that call.
    """

    def __init__(self, messages: Messages) -> None:
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
