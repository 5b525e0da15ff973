"""Before anything is written: find out whether all have arrived, with the same call.

On one host the board tells both with one hand-over. Across hosts a word is spread with
messages, and what rides on it: spreading.py.
"""

from __future__ import annotations

import time

from collectives.board import CALLS
from collectives.descriptor import Descriptor
from collectives.group import Group
from collectives.options import Options
from collectives.spreading import Ride, spreading_of

CALL_NUMBER = {name: number for number, name in enumerate(CALLS)}


def agree(
    group: Group, descriptor: Descriptor, options: Options, ride: Ride | None = None
) -> bool:
    """Wait until every rank has arrived; tell whether all make the same call.

    The answer is the same on every rank. If it is True, and ranks are on several hosts,
    `ride` has been combined.

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
    return spreading_of(group).agree(sequence, word, ride, options.timeout_s)


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
