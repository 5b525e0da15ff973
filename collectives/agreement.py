"""Before anything is written: find out whether all have arrived, with the same call.

On one host the board tells both with one hand-over. Across hosts the ranks exchange, by
recursive doubling, the lowest and the highest word that they have seen; all words are
equal when the two are. Every call begins with this same pattern, so that ranks in
different calls always find their partners, and all of them come to the same answer.

A small all-reduce *rides* on that exchange: its data travel behind the words, in the
same messages, and no round is spent on agreeing alone. It is worked on in a copy, which
counts only when the words were equal.
"""

from __future__ import annotations

import time
from functools import lru_cache

import numpy as np

from collectives.board import CALLS
from collectives.calls import Ride
from collectives.descriptor import Descriptor
from collectives.group import AGREEMENT_TAGS, SEQUENCE_BITS, Group
from collectives.kernels import Array
from collectives.options import Options
from collectives.schedules import Step, recursive_doubling

CALL_NUMBER = {name: number for number, name in enumerate(CALLS)}
HEADER_BYTES = 24  # lowest word, highest word, bytes that follow
MESSAGE_BYTES = HEADER_BYTES + Ride.MOST_BYTES

steps_of = lru_cache(64)(recursive_doubling)  # asked for in every call


def agree(
    group: Group, descriptor: Descriptor, options: Options, ride: Ride | None = None
) -> bool:
    """Wait until every rank has arrived; tell whether all make the same call.

    The answer is the same on every rank. If it is True, and ranks are on several hosts,
    `ride.data` has been combined.

    Raises:
        TimedOut, PeerLost: see `Group.wait`.
    """
    sequence, board = group.sequence, group.board
    word = descriptor.word(sequence, options.salt)
    if board is not None:
        board.post(sequence, CALL_NUMBER[descriptor.collective], word)
        if group.one_board:
            if board.same(sequence, word, group.looks):
                return True
            return settle(group, word, options.timeout_s)
    unchecked = options.check == "off" and descriptor.collective != "barrier"
    if group.size == 1 or (unchecked and ride is None):
        return True
    return _exchange(group, word, ride, options.timeout_s)


def settle(group: Group, word: int, timeout_s: float) -> bool:
    """Wait for all to arrive on one board; tell whether all have posted this word.

    Raises:
        TimedOut, PeerLost: see `Group.wait`.
    """
    board, sequence = group.board, group.sequence
    assert board is not None, "only ranks on one board settle it so"
    group.wait(  # one that had arrived may have taken that back, see cycles.py
        lambda: board.same(sequence, word) or board.all_here(sequence), timeout_s
    )
    return board.same(sequence, word) or _late_store(group, word)


def _late_store(group: Group, word: int) -> bool:
    """Look once more: without ordered stores a word may be seen after its number."""
    assert group.board is not None
    time.sleep(0.001)
    return group.board.same(group.sequence, word)


def _exchange(group: Group, word: int, ride: Ride | None, timeout_s: float) -> bool:
    """Agree across hosts, with what rides along."""
    words = np.array([word, word], np.int64)
    room = group.scratch(2 * MESSAGE_BYTES)
    outgoing, incoming = room[:MESSAGE_BYTES], room[MESSAGE_BYTES:]
    tag = AGREEMENT_TAGS + (group.sequence & SEQUENCE_BITS)
    for step in steps_of(group.rank, group.size):
        pending = []
        if step.receive_from >= 0:
            pending.append(group.messages.receive(step.receive_from, incoming, tag))
        if step.send_to >= 0:
            message = _message(outgoing, words, ride)
            pending.append(group.messages.send(step.send_to, message, tag))
        for one in pending:
            group.wait(one.done, timeout_s)
        if step.receive_from >= 0:
            _take(incoming, step, words, ride)
    return bool(words[0] == words[1])


def _message(room: Array, words: Array, ride: Ride | None) -> Array:
    """Lay the words, and what rides along, into a message."""
    data = ride.bytes if ride is not None else room[:0]
    header = room[:HEADER_BYTES].view(np.int64)
    header[:2], header[2] = words, data.size
    end = HEADER_BYTES + data.size
    room[HEADER_BYTES:end] = data
    return room[:end]


def _take(message: Array, step: Step, words: Array, ride: Ride | None) -> None:
    """Combine what a partner sent with what is known here."""
    low, high, nbytes = message[:HEADER_BYTES].view(np.int64).tolist()
    words[:] = min(words[0], low), max(words[1], high)
    if ride is not None and ride.bytes.size == nbytes:
        data = message[HEADER_BYTES : HEADER_BYTES + nbytes].view(ride.data.dtype)
        ride.take(data, step.reduce, step.lower_first)
