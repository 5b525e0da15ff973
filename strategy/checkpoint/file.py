"""Arrays in a file that is whole or not there.

The file is a .npz without compression: `numpy.load` reads it. It is written beside its
place under a temporary name, synced to the disk and renamed, so a process that is
killed, or a machine that stops, leaves the old file or the new one.

The archive has a CRC-32 of every array, which any reader checks. One more entry,
`_ringfold`, holds JSON: names and dtypes of all arrays, since NumPy cannot write every
dtype, and what the caller wants to note.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from strategy.errors import DamagedCheckpointError

SUFFIX = ".npz"
PARTIAL = ".partial"  # what a file is called until it is whole
NOTES = "_ringfold"
Arrays = dict[str, "np.ndarray[Any, np.dtype[Any]]"]


def named(path: str | os.PathLike[str]) -> Path:
    """Return the file's name, which ends in .npz."""
    text = os.fspath(path)
    return Path(text if text.endswith(SUFFIX) else text + SUFFIX)


def write(path: Path, arrays: Arrays, notes: Mapping[str, Any]) -> None:
    """Write arrays to `path`; once this returns they outlive a power cut.

    Raises `OSError` where the disk will not have them; `path` is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Processes that know nothing of each other may write one file: the last one wins.
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    dtypes = {name: str(array.dtype) for name, array in arrays.items()}
    written = {**notes, "dtypes": dtypes}
    try:
        with open(partial, "wb") as file:
            _write_zip(file, {**arrays, NOTES: np.array(json.dumps(written))})
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and the notes in a file, after checking every byte of them.

    Raises `FileNotFoundError`, or `DamagedCheckpointError` with the name of the newest
    whole file before this one, where names end in numbers.
    """
    with open(path, "rb") as opened:
        try:
            return _read(opened)
        except Exception as error:  # a damaged archive raises anything
            problem = f"{type(error).__name__}: {error}"
    before = next((other for other in earlier(path) if _is_whole(other)), None)
    offer = f"{before} is whole" if before else "there is no whole one before it"
    raise DamagedCheckpointError(f"checkpoint {path} is damaged ({problem}); {offer}")


def numbered(folder: Path, name: str) -> dict[int, Path]:
    """Return the files `name-N.npz` in a folder by N, in order."""
    pattern = re.compile(rf"{re.escape(name)}-(\d+){re.escape(SUFFIX)}")
    found = {
        int(match[1]): folder / entry.name
        for entry in (folder.iterdir() if folder.is_dir() else ())
        if (match := pattern.fullmatch(entry.name))
    }
    return dict(sorted(found.items()))


def sweep(folder: Path, name: str) -> None:
    """Delete what saves of `name-N.npz` have left that were killed."""
    for left in folder.glob(f"{name}-*{SUFFIX}.*{PARTIAL}"):
        pid = left.name.removesuffix(PARTIAL).rpartition(".")[2]
        if pid == str(os.getpid()) or not Path("/proc", pid).exists():
            left.unlink(missing_ok=True)


def earlier(path: Path) -> Iterator[Path]:
    """Yield the files of the same name with lower numbers, the newest first."""
    name, dash, number = path.name.removesuffix(SUFFIX).rpartition("-")
    if dash and number.isdecimal():
        siblings = numbered(path.parent, name)
        yield from (siblings[n] for n in reversed(siblings) if n < int(number))


def _write_zip(file: IO[bytes], arrays: Arrays) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            # Sizes are not known before: say beforehand that they may be large.
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, _native(array), allow_pickle=False)


def _read(file: IO[bytes]) -> tuple[Arrays, dict[str, Any]]:
    with np.load(file, allow_pickle=False) as archive:
        notes = json.loads(str(archive[NOTES]))
        dtypes = notes.pop("dtypes")
        if {*archive.files} != {*dtypes, NOTES}:
            raise ValueError("it does not have the arrays that were written")
        return {
            name: archive[name].view(_dtype(dtypes[name])) for name in dtypes
        }, notes


def _is_whole(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            _read(file)
    except Exception:
        return False
    return True


def _native(array: Any) -> Any:
    """Return the array as NumPy can write it: a bfloat16 as the uint16 of its bits."""
    foreign = array.dtype.isbuiltin == 2
    return array.view(f"u{array.itemsize}") if foreign else array


def _dtype(name: str) -> np.dtype[Any]:
    """Return a dtype by name; those of ml_dtypes have one once it is imported."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype


def _sync_folder(folder: Path) -> None:
    """Have the disk know the new name, which is the folder's content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
