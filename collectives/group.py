"""The ranks of a communicator, and the state that its calls share.

A `Group` is what lies under every communicator with the same ranks, whatever their
options: the transport, the board, the sequence number, and whether it is broken.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collectives import forks
from collectives.arena import Arena
from collectives.board import Board, Looks, State
from collectives.cycles import Waits, describe
from collectives.descriptor import Descriptor
from collectives.ending import say
from collectives.errors import BrokenCommunicatorError, MismatchError
from collectives.farewell import Farewells
from collectives.gpu.facts import Gpus
from collectives.gpu.pinned import Pinned
from collectives.handles import Engine
from collectives.kernels import Array
from collectives.racing import Race
from collectives.recorder import Members, Site, here
from collectives.registered import Results
from collectives.rollcall import Presence, RollCall
from collectives.tables import Table, Tuning
from collectives.topology import Topology
from collectives.transport import Messages
from collectives.transport.device_window import DeviceWindow
from collectives.waiting import (
    SPINS,
    YIELDS,
    Liveness,
    PeerLost,
    TimedOut,
    wait_until,
    yield_core,
)
from collectives.window import Window

# The tag space (MPI promises 32,767). Data and agreement tags carry the low bits of the
# sequence number, so that leftovers of a failed call never meet a later one.
DATA_TAGS = 0x0000
RESULT_TAGS = 0x2000  # of calls whose messages are of two kinds
AGREEMENT_TAGS = 0x4000
SEQUENCE_BITS = 0x1FFF

WARN_S = 60.0

_broken: set[Group] = set()
"""Kept for ever: the transport may still write into what they have."""


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
        parent: Group | None = None,
        members: Members | None = None,
        waits: Waits | None = None,
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
            parent: the group whose arena this one uses; it closes that one's as well.
            members: who they are in the job; without it, ranks are numbers in the job.
            waits: what the ranks of this host wait for, in all groups of the family.
        """
        self.messages = messages
        self.topology = topology
        self.board: Board | None = None
        self.arena = arena
        self.liveness = liveness
        self.mpi = mpi
        self.native = native
        self.parent = parent
        self.derived: weakref.WeakSet[Group] = weakref.WeakSet()
        self.rank = messages.rank
        self.size = messages.size
        self.members = members or Members(tuple(range(self.size)), "")
        self.waits = waits
        self.site: Site | None = None
        """Where a call that goes on in the background was started."""
        self._families: Counter[tuple[int, ...]] = Counter()
        self.sequence = 0
        self.broken = ""
        self.closed = False
        self.doing = ""
        self.collective = True
        """Whether all members make the call that this rank is in."""
        self.joining = ""
        """What divides a `mean` inside a join; empty outside of one."""
        self.divisor = messages.size
        """What a `mean` divides by."""
        self.to_answer: Descriptor | None = None
        """The call that is under way inside a join; None when all have joined."""
        self.twin: Group | None = None
        """The same ranks once more, for calls in the background; made when needed."""
        self.engine: Engine | None = None
        self.stranded: list[Any] = []
        """Messages under way, and the arrays of calls that were broken off: the
        transport, or a rank that is late, may still write into them."""
        self.one_board = False
        if board is not None:
            self.use_board(board)
        crowded = topology.cores < topology.local_size  # a peer may need this core
        # A message from another host takes longer than a spin is good for.
        self.spins = 0 if crowded or len(topology.hosts) > 1 else SPINS
        self.looks: Looks = (YIELDS, yield_core) if crowded else (SPINS, None)
        self.window: Window | None = None
        """Memory to work in together; see opening.py."""
        self.no_window = ""
        """Why there will never be one."""
        self.device_window: DeviceWindow | None = None
        """The same in the memory of GPUs; see algorithms/device_window.py."""
        self.not_direct = ""
        """Why the members cannot read each other's memory."""
        self.results: Results | None = None
        """Results that are common to the ranks; there with the window."""
        self.spreading: Any = None
        """How it agrees across hosts; see spreading.py."""
        self.gpus: Gpus | None = None
        """What the members have for device arrays; None until the first such call."""
        self.nccl: Any = None
        """Its `Nccl` (transport/nccl.py), once a call has gone that way."""
        self.pinned = Pinned(arena)
        """Host memory that GPUs copy from and to by themselves."""
        self.at_close: list[Callable[[], None]] = []
        """Gives up what belongs to the group, the latest first; called on all members,
        in the same order, since some of it waits for the others, but not for ever."""
        self.part = -1
        """Where this rank has carved its part of the window."""
        self.plans: dict[Any, dict[Any, Any]] = {}
        """What plans.py keeps, by options; void once there is a window."""
        self.know(parent.tables if parent is not None else ())
        self.race = Race()
        """Which of several algorithms is the fastest at the moment."""
        self._lock = threading.Lock()
        self._scratch = np.empty(0, np.uint8)
        self._warn_after_s = WARN_S
        self.farewells = Farewells(messages)
        self.rollcall = RollCall(messages)
        self.lines = -1
        """Where this rank has carved the board's lines from its heap, if it did."""
        if mpi is not None:
            forks.protect(self)

    def some(self, ranks: Sequence[int], background: bool) -> Members:
        """Return the members of a group to be derived from this one."""
        self._families[tuple(ranks)] += 1
        return self.members.some(ranks, self._families[tuple(ranks)], background)

    def use_board(self, board: Board) -> None:
        """Agree over this board from now on; on all members of the host at once."""
        self.board = board
        self.one_board = self.topology.local_size == self.size

    def check_open(self) -> None:
        """Raise `BrokenCommunicatorError` if it was closed, or in a forked child."""
        if self.closed:
            raise self._unusable()

    def _unusable(self) -> BrokenCommunicatorError:
        return BrokenCommunicatorError(
            f"rank {self.rank}: this communicator cannot be used any more: "
            + (self.broken or "it was closed")
        )

    def enter(self, doing: str, collective: bool = True) -> None:
        """Begin a call, of all members if `collective`; `exit` ends it.

        Raises:
            BrokenCommunicatorError: an earlier call failed, the communicator is closed,
                or another thread is inside a call.
        """
        if self.broken or self.closed:
            raise self._unusable()
        if not self._lock.acquire(blocking=False):
            raise BrokenCommunicatorError(
                f"rank {self.rank}: another thread is inside {self.doing} on this "
                "communicator; use one communicator a thread"
            )
        self.doing = doing
        self.collective = collective
        self.sequence += collective

    def enter_quickly(self) -> bool:
        """Begin a call as `enter` does; tell, having done nothing, if it is unusual."""
        if self.broken or self.closed or self.joining:
            return False
        if not self._lock.acquire(blocking=False):
            return False
        self.doing = "all_reduce"
        self.collective = True
        self.sequence += 1
        return True

    def exit(self) -> None:
        """End the call that `enter` began."""
        if self.broken:
            _broken.add(self)
        if self.board is not None:
            self.board.back_to_user()
        self._lock.release()

    def wait(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Poll `ready` until it is true; see `waiting.wait_until`.

        Raises:
            TimedOut: nothing happened for `timeout_s`.
            PeerLost: a rank that this call needs is dead or has left.
        """
        self._wait(ready, timeout_s, self.spins)

    def hand_over(
        self, timeout_s: float, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """Wait until all members on this board have come to the same hand-over.

        Args:
            timeout_s: as in `wait`.
            meanwhile: called again and again while there is nothing but to wait.

        Raises:
            TimedOut, PeerLost: as in `wait`.
        """
        board = self.board
        assert board is not None, "a hand-over needs a board"

        def ready() -> bool:
            if meanwhile is not None:
                meanwhile()
            return board.handed_over()

        try:
            if not board.hand_over(self.looks):
                self._wait(ready, timeout_s)
        except BaseException:
            board.withdraw()
            raise

    def _wait(
        self, ready: Callable[[], bool], timeout_s: float, spins: int = 0
    ) -> None:
        if ready():
            return
        self._warn_after_s = min(WARN_S, timeout_s / 10)
        try:
            wait_until(ready, timeout_s=timeout_s, spins=spins, health=self._health)
        except TimedOut:
            if self.waits is not None:
                self.waits.end(self.board, gave_up=True)
            raise
        finally:
            if self.waits is not None:
                self.waits.end(self.board)

    def scratch(self, nbytes: int) -> Array:
        """Return `nbytes` of memory that lasts until the end of the call."""
        if self._scratch.size < nbytes:
            self._scratch = np.empty(nbytes, np.uint8)
        return self._scratch[:nbytes]

    def absent(self, peers: Sequence[int] | None = None) -> dict[int, str]:
        """Return what `peers`, or those that are late for this call, are seen doing.

        Only ranks of this host can be seen; those of other hosts are left out.
        """
        if self.board is None:
            return {}
        if peers is None:
            peers = self.board.late(self.sequence) or self.board.behind()
        here = self.topology.local_ranks
        return {rank: self._seen(self.board, rank) for rank in peers if rank in here}

    def presence(self) -> Presence:
        """Return what to tell of this rank when another one asks."""
        sequence = self.sequence if self.collective else -1
        doing = f"{self.doing} #{sequence}" if self.collective else self.doing
        return Presence(sequence, doing, self.absent())

    def _seen(self, board: Board, rank: int) -> str:
        """Return what a rank of this host is seen doing, in this group or elsewhere."""
        sighting = board.seen(rank)
        elsewhere = ""
        if self.waits is not None and sighting.state is State.USER:
            elsewhere = self.waits.elsewhere(self.members.ranks[rank])
        return elsewhere or str(sighting)

    def called(self, rank: int) -> str:
        """Return `rank 1`, and its number in the job where that is another."""
        number = self.members.ranks[rank]
        return f"rank {rank}" + (f" ({number} of the job)" if number != rank else "")

    def know(self, tables: Sequence[Table]) -> None:
        """Decide by these from now on; they must be the same on all ranks."""
        self.tables = tables
        self.tuning = Tuning(tables, self.topology)
        """What they say of this place: rules, and what moves cost."""
        for plans in self.plans.values():
            plans.clear()

    @property
    def threads(self) -> bool:
        """Whether two threads may use the transport at once."""
        mpi = self.topology.mpi
        return self.native is None or mpi is None or mpi.thread_level == "multiple"

    def _health(self, waited_s: float) -> None:
        """Raise `PeerLost` when waiting is in vain; warn once when it takes long."""
        dead = self.liveness.dead() if self.liveness is not None else []
        if dead:
            raise PeerLost(dead[0], "died")
        if self.board is not None:
            late = self.board.late(self.sequence)
            for rank in late or self.board.behind():
                if self.board.seen(rank).state is State.LEFT:
                    raise PeerLost(rank, str(self.board.seen(rank)))
            self._look_around(self.board, late)
        rank, sequence = self.farewells.heard()
        if rank >= 0 and sequence < self.sequence:
            raise PeerLost(rank, f"left the job after call #{sequence}")
        gave_up = -1 if self.one_board else self.rollcall.look(self.presence)
        if gave_up >= 0:
            raise TimedOut(gave_up)
        if waited_s > self._warn_after_s:
            self._warn_after_s = float("inf")
            absent = [f"rank {rank} {what}" for rank, what in self.absent().items()]
            say(
                f"ringfold: rank {self.rank} has waited {waited_s:.1f} s in "
                f"{self.doing} #{self.sequence}: {'; '.join(absent) or 'all are here'}"
            )

    def _look_around(self, board: Board, late: Sequence[int]) -> None:
        """Tell the host that this rank waits; raise if it waits in vain for sure.

        Raises:
            MismatchError: ranks wait for each other, in calls on different groups; all
                of them raise this, and none of these calls has been made.
        """
        if self.waits is None or self.members.background:
            return
        # Nothing has been sent yet, and only an arrival can end this wait.
        only_arrivals = bool(late) and self.one_board and not self.joining
        self.waits.tell(board, self.sequence, only_arrivals and here.callers() <= 1)
        stuck = self.waits.stuck()
        if stuck and self.waits.take_back(stuck, lambda: self._take_back(board)):
            raise MismatchError(describe(stuck))

    def _take_back(self, board: Board) -> None:
        board.take_back(self.sequence)
        self.sequence -= 1

    def close(self) -> None:
        """Give up board, arena and transport; may be called twice."""
        if self.closed:
            return
        self.closed = True
        # In one order on all ranks: some of what is closed waits for the others.
        for group in sorted(self.derived, key=lambda group: group.members):
            group.close()
        while self.at_close:
            self.at_close.pop()()
        self.pinned.close()
        if self.board is not None:
            self.board.close()
        if self.results is not None:
            self.results.close()
        for plans in self.plans.values():
            plans.clear()
        self.spreading = None
        if self.window is not None:
            self.window.close()
        self.window = None
        for place in (self.lines, self.part):
            if self.arena is not None and place >= 0:
                self.arena.release(place)
        if self.parent is None:
            if self.liveness is not None:
                self.liveness.close()
            if self.waits is not None:
                self.waits.close()
            if self.arena is not None:
                self.arena.close()
        self.messages.close()
