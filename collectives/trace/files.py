"""The files that flight recorders write, read back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.tracefile import FORMAT

PATTERN = "ringfold-rank-*.json"


class BadTraceError(Exception):
    """A file that is not what a flight recorder writes, or files that don't match."""


@dataclass(frozen=True)
class Call:
    """One call of one rank; times are nanoseconds since 1970."""

    group: str
    sequence: int
    call: str
    text: str
    fields: dict[str, Any]
    peers: list[int] | None
    """Whom it was about, where it was not a call of all members."""
    state: str
    why: str
    start_ns: int
    end_ns: int
    """0 when it had not ended."""
    thread: int
    file: str
    line: int
    function: str

    @property
    def name(self) -> str:
        """`all_reduce #3`, or `recv from or to 1`."""
        if self.peers is None:
            return f"{self.call} #{self.sequence}"
        return f"{self.call} with {' '.join(map(str, self.peers))}"

    @property
    def site(self) -> str:
        """`train.py:12 in step`."""
        where = f"{Path(self.file).name}:{self.line}"
        return where if self.function == "<module>" else f"{where} in {self.function}"


@dataclass(frozen=True)
class Dump:
    """What one rank has written."""

    rank: int
    size: int
    host: str
    reason: str
    written_ns: int
    complete: bool
    """Whether no call is so long ago that it was forgotten."""
    groups: dict[str, tuple[int, ...]]
    """Ranks of each group, by a key that is the same on all of them."""
    background: frozenset[str]
    """Keys of the groups for calls that go on in the background."""
    calls: list[Call]


def read_files(paths: Iterable[str]) -> list[Dump]:
    """Read files, and folders of files; return what they hold, in order of ranks.

    Raises:
        BadTraceError: nothing is there, or it is not of one job.
        OSError: a file cannot be read.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.glob(PATTERN)) if path.is_dir() else [path]
    if not files:
        raise BadTraceError(f"no {PATTERN} in {' '.join(map(str, paths))}")
    dumps = [_read(file) for file in files]
    _check(dumps, files)
    return sorted(dumps, key=lambda dump: dump.rank)


def _read(file: Path) -> Dump:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise BadTraceError(
                f"{file} has format {content['format']}; wanted {FORMAT}"
            )
        groups = content["groups"]
        return Dump(
            rank=content["rank"],
            size=content["size"],
            host=content["host"],
            reason=content["reason"],
            written_ns=content["written_ns"],
            complete=content["complete"],
            groups={key: tuple(groups[key]["ranks"]) for key in groups},
            background=frozenset(key for key in groups if groups[key]["background"]),
            calls=[Call(**call) for call in content["calls"]],
        )
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise BadTraceError(f"{file} is no recorder's file: {why}") from None


def _check(dumps: Sequence[Dump], files: Sequence[Path]) -> None:
    seen: dict[int, Path] = {}
    for dump, file in zip(dumps, files, strict=True):
        if dump.rank in seen:
            raise BadTraceError(
                f"{seen[dump.rank]} and {file} are both of rank {dump.rank}"
            )
        seen[dump.rank] = file
        if dump.size != dumps[0].size:
            raise BadTraceError(
                f"the files are of different jobs: {files[0]} of {dumps[0].size} "
                f"ranks, {file} of {dump.size}"
            )
