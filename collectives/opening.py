"""Opening a group's window, at the first call that may want it.

Each host has its own. All members make that call, and all of them come to the same
verdict: whether there is a window on every host, and, where there is one host only,
whether its ranks may read each other's memory besides.
"""

from __future__ import annotations

import ctypes
import secrets
from contextlib import suppress
from pathlib import Path

import numpy as np

from collectives.algorithms import direct
from collectives.algorithms.small import all_gather_rows
from collectives.board import FIRST, SOURCE, TARGET, WINDOW
from collectives.fence import trusted
from collectives.group import Group
from collectives.registered import Results
from collectives.window import Window, part_bytes

TRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
SET_PTRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(-1)


def open_window(group: Group, timeout_s: float) -> None:
    """Make the windows of a group, one a host; once, by all members.

    Afterwards `group.window` is there, or `group.no_window` says why it will never be;
    `group.not_direct` says why the members cannot read each other's memory.
    """
    places = _carve_parts(group, timeout_s)
    without = [rank for rank, its in places.items() if its < 0]
    if group.topology.local_size < group.size:
        mine = np.array([group.rank in without or not places], np.int64)
        rows = all_gather_rows(group, mine, timeout_s)
        without = np.flatnonzero(rows[:, 0]).tolist()
    elif not places:
        group.no_window = "the ranks share no memory"
        return
    place = places.get(group.rank, -1)
    if without:
        if place >= 0 and group.arena is not None:
            group.arena.release(place)
        group.no_window = f"ranks {without} had no memory to share for a window"
        return
    assert group.arena is not None
    group.spreading = None  # it goes on two levels from now on
    group.part = place
    group.window = Window(group.arena, list(places.values()))
    if group.one_board:
        group.results = Results(group.arena)


def _carve_parts(group: Group, timeout_s: float) -> dict[int, int]:
    """Return where the parts of this host's members lie; -1: nowhere.

    Nothing at all where memory cannot be shared. On one host, find out as well whether
    the members can read each other's memory.
    """
    board, arena = group.board, group.arena
    if not trusted or board is None or arena is None:
        return {}
    members = group.topology.local_ranks
    place = -1
    with suppress(MemoryError):
        place = arena.carve(part_bytes(len(members)))
    own = np.array([secrets.randbits(62)], np.int64)
    board.write(WINDOW, place)
    board.write(SOURCE, own.ctypes.data)
    board.write(TARGET, int(own[0]))
    _let_peers_read()
    group.hand_over(timeout_s)
    places = dict(zip(members, board.read(WINDOW), strict=True))
    board.write(FIRST, direct.probe(board, own))
    group.hand_over(timeout_s)
    blind = [
        rank for rank, sees in zip(members, board.read(FIRST), strict=True) if not sees
    ]
    if blind:
        group.not_direct = f"ranks {blind} may not read the memory of the others"
    return places


def _let_peers_read() -> None:
    """Allow it where the system lets only a process's parents read its memory."""
    with suppress(OSError, AttributeError):
        if TRACE_SCOPE.read_text().strip() == "1":
            ctypes.CDLL(None).prctl(SET_PTRACER, ANYBODY, 0, 0, 0)
