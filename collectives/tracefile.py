"""The flight recorder's file, which `ringfold trace` compares with other ranks'.

With `RINGFOLD_TRACE=FOLDER` the notes are written to `FOLDER/ringfold-rank-R.json` when
a call fails and when the process ends, and while there is news several times a second,
because most launchers kill the other ranks of a failed job without a warning.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import CodeType
from typing import Any

from collectives import recorder
from collectives._version import __version__
from collectives.descriptor import Descriptor
from collectives.ending import LAST_WORDS, say
from collectives.recorder import (
    AGREED,
    CALL,
    CODE,
    DONE,
    END_NS,
    FAILED,
    INSTRUCTION,
    MEMBERS,
    PEERS,
    SEQUENCE,
    START_NS,
    STARTED,
    STATE,
    THREAD,
    Note,
    Recorder,
    line_of,
    word_of,
)

WRITE_S = 0.15  # how old a killed rank's file may be; below `DRAIN_S` of ending.py
FORMAT = 1


class TraceFile:
    """Writes the notes of a recorder into a folder, once there is one."""

    def __init__(self, notes_of: Recorder) -> None:
        """Write what `notes_of` records."""
        self.folder = ""
        self._recorder = notes_of
        self._given = ""
        self._lock = threading.Lock()
        self._written: Note | None = None
        self._stopped = False
        notes_of.on_failure = self.write

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
            say(f"ringfold: rank {self._recorder.rank} cannot write its trace: {error}")
            self.folder = ""

    def dump(self, folder: str | os.PathLike[str], reason: str = "asked") -> Path:
        """Write the notes as JSON into a folder; return the file.

        The file is complete at any time.

        Raises:
            OSError: the folder cannot be made or written to.
        """
        path = Path(folder) / f"ringfold-rank-{self._recorder.rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        last = self._last()
        if last and last[STATE] in (DONE, FAILED):
            self._written = last
        replace_file(path, json.dumps(contents(self._recorder, reason), default=str))
        return path

    def stop(self) -> None:
        """Write no more: this process has been forked from the one that recorded."""
        self.folder, self._stopped = "", True

    def last_words(self) -> None:
        """Tell where this process stands, unless an error has just done so."""
        last = self._last()
        if last and last is not self._recorder.told and not self._stopped:
            say(f"ringfold: {self._recorder.last_calls()}")
        self.write("the job was ended")

    def _last(self) -> Note | None:
        return self._recorder.notes[-1] if self._recorder.notes else None

    def _write_often(self) -> None:
        while not self._stopped:
            time.sleep(WRITE_S)
            last = self._last()
            # How long an unfinished call takes is news.
            if last and (last[STATE] in (STARTED, AGREED) or last is not self._written):
                self.write("still running")


here = TraceFile(recorder.here)
"""The file of this process."""
LAST_WORDS.append(here.last_words)


def contents(recorder: Recorder, reason: str) -> dict[str, Any]:
    """Return what a file holds; times are nanoseconds since 1970."""
    now, offset = time.time_ns(), time.time_ns() - time.monotonic_ns()
    notes = list(recorder.notes)
    described: dict[int, dict[str, Any]] = {}
    return {
        "format": FORMAT,
        "ringfold": __version__,
        "rank": recorder.rank,
        "size": recorder.size,
        "host": os.uname().nodename if hasattr(os, "uname") else "",
        "pid": os.getpid(),
        "reason": reason,
        "written_ns": now,
        "complete": len(notes) < (recorder.notes.maxlen or 0),
        "groups": {
            members.key: {
                "ranks": members.ranks,
                "background": members.background,
            }
            for members in {note[MEMBERS] for note in notes}
        },
        "calls": [_as_dict(note, offset, described) for note in notes],
    }


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


def _as_dict(
    note: Note, offset: int, described: dict[int, dict[str, Any]]
) -> dict[str, Any]:
    """Return a note in words; `described` keeps what calls have in common."""
    call = note[CALL]
    code: CodeType = note[CODE]
    if id(call) not in described:
        described[id(call)] = {
            "call": word_of(call),
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
        "line": line_of(code, note[INSTRUCTION]),
        "function": code.co_name,
    }


def _fields(call: str | Descriptor) -> Iterator[tuple[str, Any]]:
    """Yield what a call was described by, as far as it says something."""
    if isinstance(call, Descriptor):
        for field in fields(call):
            value = getattr(call, field.name)
            if field.name != "sequence" and value != field.default:
                yield field.name, value
