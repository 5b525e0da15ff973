"""Flight recorder: the last calls of this process, for when something goes wrong.

Every call is noted before it does anything else: its number, its group, what it is, how
far it got, when, and the line of the caller's program that made it. Notes go round in a
ring, so that recording costs the same few hundred nanoseconds for ever, and nothing is
formatted before somebody asks. An error carries the last few calls of its rank as a
note; tracefile.py writes all of them into a folder, if there is one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from types import CodeType, FrameType
from typing import Any, NamedTuple

from collectives.descriptor import Descriptor
from collectives.ending import say
from collectives.errors import CollectiveTimeoutError, MismatchError, PeerFailedError

CALLS_KEPT = 256
CALLS_SHOWN = 3  # in the note of an error

# What is worth telling; anything else is the caller's own affair.
FAILURES = (CollectiveTimeoutError, PeerFailedError, MismatchError)

STARTED, AGREED, DONE, FAILED = "started", "agreed", "done", "failed"

# A note is a list, because nothing that has names is made as quickly.
Note = list[Any]
MEMBERS, SEQUENCE, CALL, STATE, START_NS, END_NS, CODE, INSTRUCTION, THREAD, PEERS = (
    range(10)
)

Site = tuple[CodeType, int]
"""A place in somebody's program: the code and the instruction in it."""

# Frames of these packages are ours; the first other one is the caller's.
PACKAGES = tuple(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), name, "")
    for name in ("collectives", "strategy")
)
_is_ours: dict[str, bool] = {}  # by file; asking a dict is half the price of a prefix
FILES_KEPT = 1000  # a notebook's cells are a file each

_now = time.monotonic_ns
_frame = sys._getframe
_thread = threading.get_ident


class Members(NamedTuple):
    """The ranks of a group, and a key that tells it from others of the same ranks."""

    ranks: tuple[int, ...]
    """Their numbers in the job."""
    key: str
    background: bool = False
    """Whether its calls are made by a thread of ours."""

    def some(
        self, ranks: Sequence[int], number: int, background: bool = False
    ) -> Members:
        """Return the members of a group derived from this one.

        Args:
            ranks: numbers in this group.
            number: how many groups of these ranks were derived from this one before.
            background: whether a thread of ours will make its calls.
        """
        job_ranks = tuple(self.ranks[rank] for rank in ranks)
        return Members(job_ranks, key_of(self.key, list(ranks), number), background)

    def __str__(self) -> str:
        """Return `group [0, 1]`."""
        return f"group {short_list(self.ranks)}"


def key_of(*facts: object) -> str:
    """Return a short text that differs when the facts do."""
    return blake2b(repr(facts).encode(), digest_size=6).hexdigest()


def short_list(ranks: Sequence[int]) -> str:
    """Return ranks in brackets, short whatever the number."""
    first, more = ranks[:8], len(ranks) - 8
    shown = ", ".join(map(str, first))
    return f"[{shown}, … {ranks[-1]}]" if more > 0 else f"[{shown}]"


class Recorder:
    """The notes of the latest calls of one process."""

    def __init__(self, capacity: int = CALLS_KEPT) -> None:
        """Keep that many calls."""
        self.notes: deque[Note] = deque(maxlen=capacity)
        self.rank = 0
        """This process's number in the job."""
        self.size = 1
        self.told: Note | None = None
        """The call whose error was the last to tell where this process stands."""
        self.on_failure: Callable[[str], None] = lambda reason: None
        """Called with what has failed, after it was told."""

    def begin(
        self,
        members: Members,
        sequence: int,
        call: str,
        site: Site | None = None,
        peers: Sequence[int] | None = None,
    ) -> Note:
        """Note that a call begins; whoever makes it fills in how it goes on.

        To be called by what a method of a communicator calls. `site` is who made the
        call, where that is not on this thread's stack. `peers` are whom a call is about
        that not all members make.
        """
        if site is None:
            frame = _frame(4)
            code = frame.f_code
            if _is_ours.get(code.co_filename, True):
                code, instruction = _caller(frame)
            else:
                instruction = frame.f_lasti
        else:
            code, instruction = site
        note = [
            members,
            sequence,
            call,
            STARTED,
            _now(),
            0,
            code,
            instruction,
            _thread(),
            peers,
        ]
        self.notes.append(note)
        return note

    def close(self, note: Note) -> None:
        """Note, if a call has not ended well, the exception under way; tell of it."""
        if note[STATE] is DONE:
            return
        error = sys.exc_info()[1]
        note[STATE], note[END_NS] = FAILED, _now()
        note.append(f"{type(error).__name__}: {error}")
        if isinstance(error, FAILURES):
            self.told = note
            tell = getattr(error, "add_note", say)  # Python 3.10 has no notes
            tell(f"ringfold: {self.last_calls()}")
            self.on_failure(f"{_name(note)} failed")

    def last_calls(self, count: int = CALLS_SHOWN) -> str:
        """Return the latest calls in a line."""
        notes = list(self.notes)[-count:]
        told = "; ".join(
            f"{_name(note)} {note[STATE]} ({_place(note)})" for note in notes
        )
        return f"last calls of rank {self.rank}: {told}"

    def callers(self) -> int:
        """Return how many threads have made the latest calls, ours not counted."""
        return len({n[THREAD] for n in list(self.notes) if not n[MEMBERS].background})


here = Recorder()
"""The recorder of this process."""


def end(note: Note) -> None:
    """Note that a call has ended well."""
    note[STATE], note[END_NS] = DONE, _now()


def call_site() -> Site:
    """Return the place in the caller's program that has led here."""
    return _caller(_frame(1))


def _caller(frame: FrameType) -> Site:
    """Return the innermost place at or above `frame` that is not in our packages."""
    while True:
        name = frame.f_code.co_filename
        if name not in _is_ours:
            if len(_is_ours) >= FILES_KEPT:
                _is_ours.clear()
            _is_ours[name] = name.startswith(PACKAGES)
        if not _is_ours[name] or frame.f_back is None:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back


def word_of(call: str | Descriptor) -> str:
    """Return the name of a call, however well it is known."""
    return call.collective if isinstance(call, Descriptor) else call


def _name(note: Note) -> str:
    return f"{word_of(note[CALL])} #{note[SEQUENCE]}"


def _place(note: Note) -> str:
    line = line_of(note[CODE], note[INSTRUCTION])
    return f"{os.path.basename(note[CODE].co_filename)}:{line}"


@lru_cache(FILES_KEPT)
def line_of(code: CodeType, instruction: int) -> int:
    """Return the line of an instruction, which nobody wants to know on the hot path."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return int(line)
    return int(code.co_firstlineno)
