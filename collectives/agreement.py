"""Before anything moves: find out whether all have arrived, with the same call.

On one host the board tells both with one hand-over. Across hosts the ranks spread the
lowest and the highest word by dissemination; they are equal only when all words are.
"""

from __future__ import annotations

import time

import numpy as np

from collectives.board import CALLS
from collectives.descriptor import Descriptor
from collectives.group import AGREEMENT_TAGS, SEQUENCE_BITS, Group
from collectives.options import Options
from collectives.schedules import dissemination

CALL_NUMBER = {name: number for number, name in enumerate(CALLS)}


def agree(group: Group, descriptor: Descriptor, options: Options) -> bool:
    """Wait until every rank has arrived; tell whether all make the same call.

    The answer is the same on every rank.

    Raises:
        TimedOut, PeerLost: see `Group.wait`.
    """
    sequence = group.sequence
    word = descriptor.word(sequence)
    board = group.board
    if board is not None:
        board.post(sequence, CALL_NUMBER[descriptor.collective], word)
        if group.one_board:
            if board.same(sequence, word):
                return True
            arrived = board.arrived(sequence)
            group.wait(
                lambda: board.same(sequence, word) or arrived(), options.timeout_s
            )
            return board.same(sequence, word) or _late_store(group, word)
    unchecked = options.check == "off" and descriptor.collective != "barrier"
    if group.size == 1 or unchecked:
        return True
    low, high = _spread(group, word, options.timeout_s)
    return low == high


def _late_store(group: Group, word: int) -> bool:
    """Look once more: without ordered stores a word may be seen after its number."""
    assert group.board is not None
    time.sleep(0.001)
    return group.board.same(group.sequence, word)


def _spread(group: Group, word: int, timeout_s: float) -> tuple[int, int]:
    """Return the lowest and the highest word of all ranks."""
    messages = group.messages
    tag = AGREEMENT_TAGS + (group.sequence & SEQUENCE_BITS)
    mine = np.array([word, word], np.int64)
    theirs = np.empty(2, np.int64)
    for target, source in dissemination(group.rank, group.size):
        receiving = messages.receive(source, theirs.view(np.uint8), tag)
        sending = messages.send(target, mine.view(np.uint8), tag)
        group.wait(sending.done, timeout_s)
        group.wait(receiving.done, timeout_s)
        mine = np.array([min(mine[0], theirs[0]), max(mine[1], theirs[1])], np.int64)
    return int(mine[0]), int(mine[1])
