"""The values of variables, saved and restored by all ranks together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

import collectives
from strategy.base import Strategy
from strategy.checkpoint import file
from strategy.errors import CheckpointError, MixedStrategiesError
from strategy.variables import Variable

T = TypeVar("T")
PathLike = str | os.PathLike[str]


class Checkpoint:
    """Variables under names, which are their names in the file.

    ::

        checkpoint = Checkpoint(step=step, model={"w": w, "b": b})

    saves `step`, `model/b` and `model/w`: one value each, whatever the number of
    replicas. Of a variable that is combined when it is read, the combined value is
    saved; restoring gives each replica its share of a SUM, and the whole value of a
    MEAN or of ONLY_FIRST_REPLICA.

    All methods are collective: every rank calls them with the same arguments. Rank 0
    reads and writes; the other ranks need not see the disk. What goes wrong is the same
    error on all ranks.
    """

    def __init__(self, **items: Any) -> None:
        """Take variables, and dicts, lists, tuples and checkpoints of them.

        Raises `TypeError` for anything else, `ValueError` for one name twice.
        """
        self.variables: dict[str, Variable] = {}
        for name, variable in _walk("", items):
            if name in self.variables:
                raise ValueError(f"two variables have the name {name!r}")
            self.variables[name] = variable
        self.variables = dict(sorted(self.variables.items()))
        self.save_counter = 0

    def save(self, file_prefix: PathLike) -> str:
        """Write to `file_prefix-N.npz` with the next N; return that name.

        N follows the one of what was restored last.
        """
        return self._write(f"{os.fspath(file_prefix)}-{self.save_counter + 1}")

    def write(self, path: PathLike) -> str:
        """Write to `path`, with .npz after it; return the file's name.

        Once this returns on a rank, the file is whole and on the disk. Raises
        `OSError` where rank 0 cannot write, `CheckpointError` where ranks differ,
        `ValueError` for a variable that cannot be read as one value.
        """
        return self._write(path)

    def restore(self, path: PathLike | None, partial: bool = False) -> str | None:
        """Set the variables to what is in a file; return its name.

        None, which is the name of the latest of no checkpoints, changes nothing.
        `partial=True` leaves variables that are not in the file as they are, and what
        has no variable in the file.

        Raises `FileNotFoundError`; `DamagedCheckpointError` for a file that is not as
        it was written, with the newest whole one before it; `CheckpointError` where
        names, shapes or dtypes do not fit. The variables are then as they were.
        """
        comm = self.comm
        with self._strategy.scope():
            _check_same(comm, "restore", None if path is None else os.fspath(path))
            if path is None:
                return None
            name = file.named(path)
            arrays, notes = _read(comm, name)
            self._check_fits(arrays, name, partial)
            for key, variable in self.variables.items():
                if key in arrays:
                    variable.assign(_given(comm, arrays[key]))
        self.save_counter = notes["save_counter"]
        return str(name)

    def _write(self, path: PathLike) -> str:
        strategy, comm = self._strategy, self.comm
        name, number = file.named(path), self.save_counter + 1
        with strategy.scope():
            what = {key: (v.shape, str(v.dtype)) for key, v in self.variables.items()}
            _check_same(comm, "save", (str(name), what))
            # Every rank reads: for some variables that is a collective of its own.
            arrays = {key: v.numpy() for key, v in self.variables.items()}
            notes = {"save_counter": number, "replicas": strategy.num_replicas_in_sync}
            on_chief(comm, lambda: file.write(name, arrays, notes))
        self.save_counter = number
        return str(name)

    @property
    def comm(self) -> collectives.Communicator | None:
        """The ranks that save together, None where there is one process."""
        return self._strategy.extended.comm

    @property
    def _strategy(self) -> Strategy:
        """The strategy of all the variables."""
        every = (variable.distribute_strategy for variable in self.variables.values())
        strategies = [
            cast("Strategy", one) for one in {id(s): s for s in every}.values()
        ]
        if not strategies:
            raise ValueError("the checkpoint has no variables")
        if len(strategies) > 1:
            raise MixedStrategiesError(
                f"a checkpoint of variables of several strategies: {strategies}"
            )
        return strategies[0]

    def _check_fits(self, arrays: dict[str, Any], path: Path, partial: bool) -> None:
        """Compare what is in the file with the variables."""
        problems = []
        if not partial:
            missing = sorted(self.variables.keys() - arrays.keys())
            extra = sorted(arrays.keys() - self.variables.keys())
            problems += [f"{name} is not in the file" for name in missing]
            problems += [f"{name} has no variable" for name in extra]
        for name in self.variables.keys() & arrays.keys():
            variable, found = self.variables[name], arrays[name]
            wanted = (variable.shape, variable.dtype)
            if (found.shape, found.dtype) != wanted:
                problems.append(
                    f"{name} is {found.dtype}{list(found.shape)}; wanted "
                    f"{variable.dtype}{list(variable.shape)}"
                )
        if problems:
            raise CheckpointError(f"checkpoint {path}: {'; '.join(sorted(problems))}")


def on_chief(comm: collectives.Communicator | None, action: Callable[[], T]) -> T:
    """Return what `action` gives on rank 0; its error is raised on all ranks.

    Only errors of files and of checkpoints travel: another one is a bug of ours.
    """
    outcome: tuple[T | None, Exception | None] = (None, None)
    if comm is None or comm.rank == 0:
        try:
            outcome = action(), None
        except (OSError, CheckpointError) as error:
            outcome = None, error
    if comm is not None:
        outcome = comm.broadcast_object(outcome)
    result, problem = outcome
    if problem is not None:
        raise problem
    return result  # type: ignore[return-value]


def _read(
    comm: collectives.Communicator | None, path: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return rank 0's arrays, elsewhere others of the same shapes, and the notes."""
    read: dict[str, Any] = {}

    def action() -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, notes = file.read(path)
        read.update(arrays)
        return {key: (a.shape, a.dtype) for key, a in arrays.items()}, notes

    table, notes = on_chief(comm, action)
    return {key: read.get(key, np.empty(*table[key])) for key in table}, notes


def _given(comm: collectives.Communicator | None, array: Any) -> Any:
    """Return rank 0's array."""
    return array if comm is None else comm.broadcast(array, root=0)


def _check_same(comm: collectives.Communicator | None, call: str, mine: object) -> None:
    """Raise the same `CheckpointError` on all ranks unless they ask for the same."""
    if comm is None:
        return
    everywhere = comm.all_gather_object(mine)
    for rank, theirs in enumerate(everywhere):
        if theirs != everywhere[0]:
            raise CheckpointError(
                f"ranks {call} different checkpoints: rank 0 {everywhere[0]}, rank "
                f"{rank} {theirs}"
            )


def _walk(path: str, item: Any) -> Iterator[tuple[str, Variable]]:
    """Yield name and variable for all in nested containers."""
    if isinstance(item, Variable):
        yield path, item
        return
    if isinstance(item, Checkpoint):
        children: Any = item.variables.items()
    elif isinstance(item, dict):
        children = item.items()
    elif isinstance(item, (list, tuple)):
        children = enumerate(item)
    else:
        raise TypeError(
            f"checkpoint item {path} is {item!r}; wanted a Variable, or a dict, list, "
            "tuple or Checkpoint of them"
        )
    for key, child in children:
        yield from _walk(f"{path}/{key}" if path else str(key), child)
