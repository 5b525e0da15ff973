"""Flight recorder: the last calls of this process, for when something goes wrong.

Every call is noted before it does anything else: its number, its group, what it is, how
far it got, when, and the line of the caller's program that made it. Notes go round in a
ring, so that recording costs the same few hundred nanoseconds for ever, and nothing is
formatted before somebody asks.

With `RINGFOLD_TRACE=FOLDER` the notes are written to `FOLDER/ringfold-rank-R.json` when
a call fails and when the process ends, and while there is news several times a second,
because most launchers kill the other ranks of a failed job without a warning.
`ringfold trace FOLDER` compares the ranks' files. Without a folder, an error carries
the last few calls of its rank as a note.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from collectives._version import __version__
from collectives.descriptor import Descriptor
from collectives.ending import LAST_WORDS, say
from collectives.errors import CollectiveTimeoutError, MismatchError, PeerFailedError

CALLS_KEPT = 256
CALLS_SHOWN = 3  # in the note of an error
WRITE_S = 0.15  # how old a killed rank's file may be; below `DRAIN_S` of ending.py
FORMAT = 1

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
        self.folder = ""
        self._given = ""
        self._lock = threading.Lock()
        self._written: Note | None = None
        self._told: Note | None = None
        self._stopped = False

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
            self._told = note
            tell = getattr(error, "add_note", say)  # Python 3.10 has no notes
            tell(f"ringfold: {self.last_calls()}")
            self.write(f"{_name(note)} failed")

    def last_calls(self, count: int = CALLS_SHOWN) -> str:
        """Return the latest calls in a line."""
        notes = list(self.notes)[-count:]
        told = "; ".join(
            f"{_name(note)} {note[STATE]} ({_place(note)})" for note in notes
        )
        return f"last calls of rank {self.rank}: {told}"

    def last_words(self) -> None:
        """Tell where this process stands, unless an error has just done so."""
        if self.notes and self.notes[-1] is not self._told and not self._stopped:
            say(f"ringfold: {self.last_calls()}")
        self.write("the job was ended")

    def callers(self) -> int:
        """Return how many threads have made the latest calls, ours not counted."""
        return len({n[THREAD] for n in list(self.notes) if not n[MEMBERS].background})

    def write_to(self, folder: str) -> None:
        """Write into a folder, from now on, whenever there is a reason to."""
        if folder == self._given:
            return
        first, self._given, self.folder = not self._given, folder, folder
        self.write("just started")  # over that of an earlier job
        if first:
            threading.Thread(
                target=self._write_often, name="ringfold trace", daemon=True
            ).start()
            atexit.register(self.write, "the interpreter ended")

    def write(self, reason: str) -> None:
        """Write the notes into the folder; a folder that will not do is no error."""
        if not self.folder:
            return
        try:
            with self._lock:
                self.dump(self.folder, reason)
        except OSError as error:
            say(f"ringfold: rank {self.rank} cannot write its trace: {error}")
            self.folder = ""

    def dump(self, folder: str | os.PathLike[str], reason: str = "asked") -> Path:
        """Write the notes as JSON into a folder; return the file.

        The file is complete at any time.

        Raises:
            OSError: the folder cannot be made or written to.
        """
        path = Path(folder) / f"ringfold-rank-{self.rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        last = self.notes[-1] if self.notes else None
        if last and last[STATE] in (DONE, FAILED):
            self._written = last
        replace_file(path, json.dumps(self.contents(reason), default=str))
        return path

    def contents(self, reason: str) -> dict[str, Any]:
        """Return what a file holds; times are nanoseconds since 1970."""
        now, offset = time.time_ns(), time.time_ns() - time.monotonic_ns()
        notes = list(self.notes)
        described: dict[int, dict[str, Any]] = {}
        return {
            "format": FORMAT,
            "ringfold": __version__,
            "rank": self.rank,
            "size": self.size,
            "host": os.uname().nodename if hasattr(os, "uname") else "",
            "pid": os.getpid(),
            "reason": reason,
            "written_ns": now,
            "complete": len(notes) < (self.notes.maxlen or 0),
            "groups": {
                members.key: {
                    "ranks": members.ranks,
                    "background": members.background,
                }
                for members in {note[MEMBERS] for note in notes}
            },
            "calls": [_as_dict(note, offset, described) for note in notes],
        }

    def stop(self) -> None:
        """Write no more: this process has been forked from the one that recorded."""
        self.folder, self._stopped = "", True

    def _write_often(self) -> None:
        while not self._stopped:
            time.sleep(WRITE_S)
            last = self.notes[-1] if self.notes else None
            # How long an unfinished call takes is news.
            if last and (last[STATE] in (STARTED, AGREED) or last is not self._written):
                self.write("still running")


here = Recorder()
"""The recorder of this process."""
LAST_WORDS.append(here.last_words)


def end(note: Note) -> None:
    """Note that a call has ended well."""
    note[STATE], note[END_NS] = DONE, _now()


def replace_file(path: Path, text: str) -> None:
    """Write a file that at any time is either what it was or complete.

    Raises:
        OSError: it cannot be written; it is as it was.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


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


def _as_dict(
    note: Note, offset: int, described: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """Return a note in words; `described` keeps what calls have in common."""
    call = note[CALL]
    code: CodeType = note[CODE]
    if id(call) not in described:
        described[id(call)] = {
            "call": _word(call),
            "text": str(call),
            "fields": dict(_fields(call)),
        }
    return {
        "group": note[MEMBERS].key,
        "sequence": note[SEQUENCE],
        **described[id(call)],
        "peers": note[PEERS],
        "state": note[STATE],
        "why": note[-1] if note[STATE] == FAILED else "",
        "start_ns": note[START_NS] + offset,
        "end_ns": note[END_NS] and note[END_NS] + offset,
        "thread": note[THREAD],
        "file": code.co_filename,
        "line": _line(code, note[INSTRUCTION]),
        "function": code.co_name,
    }


def _fields(call: str | Descriptor) -> Iterator[tuple[str, Any]]:
    """Yield what a call was described by, as far as it says something."""
    if isinstance(call, Descriptor):
        for field in fields(call):
            value = getattr(call, field.name)
            if field.name != "sequence" and value != field.default:
                yield field.name, value


def _word(call: str | Descriptor) -> str:
    return call.collective if isinstance(call, Descriptor) else call


def _name(note: Note) -> str:
    return f"{_word(note[CALL])} #{note[SEQUENCE]}"


def _place(note: Note) -> str:
    line = _line(note[CODE], note[INSTRUCTION])
    return f"{os.path.basename(note[CODE].co_filename)}:{line}"


@lru_cache(FILES_KEPT)
def _line(code: CodeType, instruction: int) -> int:
    """Return the line of an instruction, which nobody wants to know on the hot path."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return int(line)
    return int(code.co_firstlineno)
