"""Agreeing across hosts: whether all ranks have the same word, and a sum on the way.

Ranks exchange the lowest and the highest word that they have seen, by recursive
doubling; all words are equal when the two are. Every call begins with this same
pattern, so that ranks in different calls always find their partners, and all of them
come to the same answer. A small all-reduce *rides* on it: its data travel behind the
words, in the same messages, and no round is spent on agreeing alone.

Once the ranks of each host have a window it goes on two levels: they arrive at their
board, with what rides in the mail; the first of them, who *leads*, exchanges with those
of the other hosts, and writes the verdict and the sum where they can see it. That is
log2(hosts) messages a host, where without a window every rank sends log2(ranks).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from collectives.group import AGREEMENT_TAGS, SEQUENCE_BITS, Group
from collectives.kernels import Array, Kernel, quiet
from collectives.lanes import lanes_of
from collectives.moves import RIDE_BYTES
from collectives.schedules import recursive_doubling
from collectives.waiting import yield_core

HEADER_BYTES = 32  # lowest word, highest word, bytes that follow, nothing
MESSAGE_BYTES = HEADER_BYTES + RIDE_BYTES

LOOKS = 100  # each gives the core away: a message takes longer than a spin is good for

schedule_of = lru_cache(64)(recursive_doubling)


class Ride(NamedTuple):
    """Room for an array of one shape and dtype that is combined while ranks agree.

    What is a pair has one for each turn; see `Spreading.turn`.
    """

    kernel: Kernel
    nbytes: int
    mine: tuple[Array, Array]
    """Where this rank puts what it has, before it agrees."""
    total: tuple[Array, Array]
    """Where the result is afterwards, to be read only, until the next call."""
    others: tuple[list[Array], list[Array]]
    """On who leads: what the others of the host have."""
    told: tuple[Array, Array] | None
    """On who leads others: where they look for the result."""
    outgoing: Array
    incoming: Array


class _Step(NamedTuple):
    send_to: int
    receive_from: int
    reduce: bool
    lower_first: bool


class Spreading:
    """One rank's part in the agreements of a group; made anew when it gets a window."""

    def __init__(self, group: Group) -> None:
        """Find out who talks to whom."""
        self._group = group
        self._window = group.window
        hosts = lanes_of(group.topology, 1).hosts
        leaders = [ranks[0] for ranks in hosts]
        self._local = group.topology.local_ranks if group.window is not None else ()
        carriers = leaders if self._local else list(range(group.size))
        self._follows = group.rank not in carriers
        self._leads = not self._follows and len(self._local) > 1
        self._steps: list[_Step] = []
        if not self._follows:
            place = carriers.index(group.rank)
            for step in schedule_of(place, len(carriers)):
                to, source = step.send_to, step.receive_from
                self._steps.append(
                    _Step(
                        carriers[to] if to >= 0 else -1,
                        carriers[source] if source >= 0 else -1,
                        step.reduce,
                        step.lower_first,
                    )
                )
        room = np.empty((2, 0 if self._follows else MESSAGE_BYTES), np.uint8)
        self._outgoing, self._incoming = room
        self._sent = self._outgoing[:HEADER_BYTES].data.cast("q")
        self._received = self._incoming[:HEADER_BYTES].data.cast("q")
        self._round = 0

    @property
    def turn(self) -> int:
        """Which places of a `Ride` the next agreement uses."""
        return self._round + 1 & 1

    def ride(
        self, kernel: Kernel, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> Ride:
        """Return room for an array; of `RIDE_BYTES` at most."""
        nbytes = prod(shape) * dtype.itemsize
        if self._follows:
            mails = self._mails(dtype, shape)
            place = self._local.index(self._group.rank)
            mine, total = (mails[0][place], mails[1][place]), (mails[0][0], mails[1][0])
            return Ride(kernel, nbytes, mine, total, ([], []), None, *mine)
        own, theirs = (
            room[HEADER_BYTES : HEADER_BYTES + nbytes].view(dtype).reshape(shape)
            for room in (self._outgoing, self._incoming)
        )
        if not self._leads:
            return Ride(
                kernel, nbytes, (own, own), (own, own), ([], []), None, own, theirs
            )
        first, second = self._mails(dtype, shape)
        others, told = (first[1:], second[1:]), (first[0], second[0])
        return Ride(kernel, nbytes, (own, own), (own, own), others, told, own, theirs)

    def _mails(
        self, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> tuple[list[Array], list[Array]]:
        assert self._window is not None, "on two levels there is one"
        return self._window.mail(0, dtype, shape), self._window.mail(1, dtype, shape)

    def agree(
        self, sequence: int, word: int, ride: Ride | None, timeout_s: float
    ) -> bool:
        """Wait until every rank has arrived; tell whether all have the same word.

        The answer is the same on every rank. If it is True, `ride.total` holds what
        `ride.mine` of all ranks combine to.

        Args:
            sequence: of the call; on two levels the word has been posted with it.
            word: what must be the same.
            ride: what is combined on the way.
            timeout_s: see `Group.wait`.

        Raises:
            TimedOut, PeerLost: see `Group.wait`.
        """
        self._round += 1
        number, turn, board = self._round, self._round & 1, self._group.board
        if self._follows:
            assert board is not None, "on two levels there is one"
            board.arrive(number)
            self._wait(lambda: board.verdict(number), timeout_s)
            return board.agreed()
        low = high = word
        if self._leads:
            assert board is not None, "on two levels there is one"
            self._wait(lambda: board.all_arrived(number), timeout_s)
            words = board.read(sequence & 1)
            low, high = min(words), max(words)
        data = ride if low == high else None
        if data is not None:
            combine, own = data.kernel.combine, data.outgoing
            for part in data.others[turn]:
                quiet.run(combine, own, part, out=own)
        same = self._cross(sequence, low, high, data, timeout_s)
        if self._leads:
            assert board is not None, "on two levels there is one"
            if same and ride is not None and ride.told is not None:
                ride.told[turn][...] = ride.outgoing
            board.arrive(2 * number + same)
        return same

    def _cross(
        self, sequence: int, low: int, high: int, ride: Ride | None, timeout_s: float
    ) -> bool:
        """Exchange with the carriers of other hosts; tell whether all words are one."""
        messages = self._group.messages
        tag = AGREEMENT_TAGS + (sequence & SEQUENCE_BITS)
        nbytes = 0 if ride is None else ride.nbytes
        sent, received = self._sent, self._received
        message = self._outgoing[: HEADER_BYTES + nbytes]
        for step in self._steps:
            arrived = departed = None
            if step.send_to >= 0:  # first: a peer waits for it
                sent[0], sent[1], sent[2] = low, high, nbytes
                departed = messages.send(step.send_to, message, tag)
            if step.receive_from >= 0:
                arrived = messages.receive(step.receive_from, self._incoming, tag)
            if arrived is not None:
                self._wait(arrived.done, timeout_s)
            if departed is not None:
                self._wait(departed.done, timeout_s)
            if arrived is None:
                continue
            low, high = min(low, received[0]), max(high, received[1])
            if received[2] != nbytes:
                low = -1  # no word is negative: nobody may take this for agreement
            elif ride is not None:
                _take(ride, step)
        return low == high

    def _wait(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Look some times, and then as in any other wait."""
        for _ in range(LOOKS):
            if ready():
                return
            yield_core()
        self._group.wait(ready, timeout_s)


def _take(ride: Ride, step: _Step) -> None:
    """Combine what a partner sent with what is known here, or replace it."""
    own, theirs = ride.outgoing, ride.incoming
    if not step.reduce:
        own[...] = theirs
    elif step.lower_first:
        quiet.run(ride.kernel.combine, theirs, own, out=own)
    else:
        quiet.run(ride.kernel.combine, own, theirs, out=own)


def spreading_of(group: Group) -> Spreading:
    """Return the group's; the same as long as it has, or has not, a window."""
    if group.spreading is None:
        group.spreading = Spreading(group)
    own: Spreading = group.spreading
    return own
