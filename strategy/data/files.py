"""Elements that lie in files: lines of text, rows of .npy, .npz and CSV files.

Each source has its `paths`, which FILE sharding deals out to the workers. Every rank
must give the same paths in the same order: `sorted(glob(...))`, since directories are
listed in any order.
"""

from __future__ import annotations

import csv
import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from strategy.data.sources import UNKNOWN
from strategy.data.streams import Stream
from strategy.errors import StructureError

Path = str | os.PathLike[str]


def as_paths(paths: Path | Sequence[Path]) -> tuple[str, ...]:
    """Return file names; `ValueError` for none at all."""
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise ValueError("paths is empty; wanted one file or more")
    return tuple(os.fspath(path) for path in several)


@dataclass(frozen=True)
class Files:
    """A source that reads one file after the other."""

    paths: tuple[str, ...]

    def open(self, epoch: int) -> Stream:
        """Return the elements of all files, file by file."""
        return Stream(element for path in self.paths for element in self.read(path))

    def read(self, path: str) -> Iterator[Any]:
        """Yield the elements of one file."""
        raise NotImplementedError

    def cardinality(self) -> int:
        """Return UNKNOWN: it would take reading the files."""
        return UNKNOWN

    def describe(self) -> str:
        """Return how many files there are, and a digest of their names.

        Without their folders: those of a host's own disk may differ.
        """
        names = "\n".join(map(os.path.basename, self.paths)).encode()
        digest = hashlib.blake2b(names, digest_size=8).hexdigest()
        return f"{len(self.paths)} file(s), names {digest}"


@dataclass(frozen=True)
class Lines(Files):
    """The lines of text files in UTF-8, each a str without its line end."""

    def read(self, path: str) -> Iterator[str]:
        """Yield the lines of one file."""
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\n")


@dataclass(frozen=True)
class Tables(Files):
    """The rows of CSV files with a header line, as dicts of numbers or strings."""

    columns: Mapping[str, DTypeLike] | None = None
    """The dtype of each column that is wanted; None means all, in float64."""

    def read(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of one file."""
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            header = rows.fieldnames or ()
            wanted = self.columns or dict.fromkeys(header, np.float64)
            if missing := sorted(set(wanted) - set(header)):
                raise StructureError(
                    f"{path} has no column {', '.join(missing)}; its header is "
                    f"{','.join(header)!r}"
                )
            types = {name: np.dtype(dtype).type for name, dtype in wanted.items()}
            for row in rows:
                where = f"{path} line {rows.line_num}"
                if None in row or None in row.values():
                    raise StructureError(f"{where} does not fit the header {header}")
                yield {
                    name: _cell(row[name], kind, f"{where}: {name}")
                    for name, kind in types.items()
                }


@dataclass(frozen=True)
class Archives(Files):
    """The rows of .npz files, as dicts of one row of each array.

    One file at a time is in memory, and as many more as a shuffle still holds rows of.
    """

    def read(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of one file."""
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        lengths = {name: array.shape[:1] for name, array in arrays.items()}
        if len(set(lengths.values())) != 1 or () in lengths.values():
            raise StructureError(
                f"{path} has arrays of {lengths} rows; wanted one number of rows"
            )
        for row in range(len(next(iter(arrays.values())))):
            yield {name: array[row].copy() for name, array in arrays.items()}


@dataclass(frozen=True)
class Mapped(Files):
    """The rows of .npy files, which are mapped and never read as a whole.

    A row's token is its number, counted through all files, so that shuffling costs no
    reading.
    """

    def open(self, epoch: int) -> Stream:
        """Return the rows of all files."""
        files = [np.load(path, mmap_mode="r") for path in self.paths]
        for path, array in zip(self.paths, files, strict=True):
            if not array.ndim or array.shape[1:] != files[0].shape[1:]:
                raise StructureError(
                    f"{path} has an array of shape {array.shape}; wanted rows like "
                    f"those of {self.paths[0]}, {files[0].shape}"
                )
        ends = list(accumulate(map(len, files)))
        starts = [0, *ends]

        def row(number: int) -> Any:
            file = bisect_right(ends, number)
            return np.array(files[file][number - starts[file]])[()]

        def rows(numbers: list[int]) -> Any:
            index = np.array(numbers, np.intp)
            of = np.searchsorted(ends, index, side="right")
            first = files[of[0]]
            result = np.empty((len(index), *first.shape[1:]), first.dtype)
            for file in np.unique(of):
                mine = of == file
                result[mine] = files[file][index[mine] - starts[file]]
            return result

        return Stream(iter(range(ends[-1])), row, rows)

    def cardinality(self) -> int:
        """Return the number of rows, from the files' headers."""
        return sum(len(np.load(path, mmap_mode="r")) for path in self.paths)


def _cell(text: str, kind: Any, where: str) -> Any:
    """Return a cell as a number or string of NumPy."""
    try:
        return kind(text)
    except ValueError:
        raise StructureError(
            f"{where} is {text!r}; wanted {np.dtype(kind).name}"
        ) from None
