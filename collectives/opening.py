"""Opening a group's window, at the first call that may want it.

All members make that call, and all of them come to the same verdict: whether there is a
window, and whether they may read each other's memory besides.
"""

from __future__ import annotations

import ctypes
import secrets
from contextlib import suppress
from pathlib import Path

import numpy as np

from collectives.algorithms import direct
from collectives.board import FIRST, SOURCE, TARGET, WINDOW
from collectives.fence import trusted
from collectives.group import Group
from collectives.window import Window, part_bytes

TRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
SET_PTRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(-1)


def open_window(group: Group, timeout_s: float) -> None:
    """Make the window of a group whose members share a board; once, by all of them.

    Afterwards `group.window` is there, or `group.no_window` says why it will never be;
    `group.not_direct` says why the members cannot read each other's memory.
    """
    board, arena = group.board, group.arena
    if not trusted or board is None or arena is None:
        group.no_window = "this processor has no memory fence that is known here"
        return
    place = -1
    with suppress(MemoryError):
        place = arena.carve(part_bytes(group.size))
    own = np.array([secrets.randbits(62)], np.int64)
    board.write(WINDOW, place)
    board.write(SOURCE, own.ctypes.data)
    board.write(TARGET, int(own[0]))
    _let_peers_read()
    group.hand_over(timeout_s)
    places = board.read(WINDOW)
    board.write(FIRST, direct.probe(board, own))
    group.hand_over(timeout_s)
    blind = [rank for rank, sees in enumerate(board.read(FIRST)) if not sees]
    if blind:
        group.not_direct = f"ranks {blind} may not read the memory of the others"
    without = [rank for rank, its in enumerate(places) if its < 0]
    if not without:
        group.part = place
        group.window = Window(arena, places)
        return
    if place >= 0:
        arena.release(place)
    group.no_window = f"ranks {without} had no memory left for a window"


def _let_peers_read() -> None:
    """Allow it where the system lets only a process's parents read its memory."""
    with suppress(OSError, AttributeError):
        if TRACE_SCOPE.read_text().strip() == "1":
            ctypes.CDLL(None).prctl(SET_PTRACER, ANYBODY, 0, 0, 0)
