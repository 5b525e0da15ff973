"""One rank fails, all stop: hooks that keep a job from hanging when one rank ends.

Without them, an uncaught exception lets a rank wait inside `MPI_Finalize` for peers
that wait for it in a collective. The hooks are installed by the first communicator of
more than one rank, unless `RINGFOLD_ABORT=0`:

* An uncaught exception, in any thread, prints its traceback and ends the whole job.
* A rank that ends in any other way first *leaves* its communicators: it tells the
  others, and waits until they have ended as well. Whoever needs it in a collective
  learns that it has left, and the job ends with a non-zero status.
* After a deadline has passed, ending the interpreter ends the job, because
  `MPI_Finalize` could wait for ever.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
import weakref
from types import TracebackType

from collectives.ending import end_job, say
from collectives.group import Group
from collectives.handles import Engine
from collectives.launcher import read_launch
from collectives.leaving import leave
from collectives.shadowing import explained
from collectives.waiting import PeerLost

__all__ = ["abort", "finish_at_exit", "forget", "install", "leave_at_exit"]

PATIENCE_S = 1e9  # others may compute for as long as they like; we warn every minute

abort = end_job

_groups: list[Group] = []
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_installed_in = 0


def leave_at_exit(group: Group) -> None:
    """Have this rank leave `group` when the interpreter ends, and install the hooks."""
    install()
    _groups.append(group)


def forget(group: Group) -> None:
    """Do not leave `group` at exit: it has been closed."""
    if group in _groups:
        _groups.remove(group)


def finish_at_exit(engine: Engine) -> None:
    """Have the calls of `engine` end before this rank leaves."""
    _engines.add(engine)


def install() -> None:
    """Install the hooks; a second call does nothing."""
    global _installed_in
    if _installed_in == os.getpid():
        return
    _installed_in = os.getpid()
    previous, previous_in_thread = sys.excepthook, threading.excepthook

    def on_error(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if previous is sys.__excepthook__:
            say("".join(traceback.format_exception(kind, error, trace)).rstrip())
        else:
            previous(kind, error, trace)
        if explanation := explained(error):
            say(explanation)
        _end_after_error(kind)

    def on_thread_error(arguments: threading.ExceptHookArgs) -> None:
        previous_in_thread(arguments)
        if not issubclass(arguments.exc_type, SystemExit):
            _end_after_error(arguments.exc_type)

    sys.excepthook = on_error
    threading.excepthook = on_thread_error
    atexit.register(_leave_all)


def _end_after_error(kind: type[BaseException]) -> None:
    """End the job, where there is one and this process is part of it."""
    rank, size = _place()
    if size > 1 and os.getpid() == _installed_in:
        say(
            f"ringfold: rank {rank} of {size} ends the job after an uncaught "
            f"{kind.__name__} (RINGFOLD_ABORT=0 turns this off)"
        )
        end_job(130 if issubclass(kind, KeyboardInterrupt) else 1)


def _place() -> tuple[int, int]:
    """Return rank and size, from the launcher where no communicator was made yet."""
    if _groups:
        return _groups[0].rank, _groups[0].size
    facts = read_launch()
    return facts.rank or 0, facts.at_least


def _leave_all() -> None:
    """Leave every communicator, in the order in which all ranks made them."""
    if os.getpid() != _installed_in or _mpi_is_over():
        return
    rank, _ = _place()
    for engine in list(_engines):
        if engine.forgotten():
            names = " ".join(engine.forgotten())
            say(f"ringfold: rank {rank} ends; nobody has waited for: {names}")
        engine.stop()
    for group in _groups:
        if group.closed:
            continue
        for one in (group, *group.derived):
            if one.broken:
                say(f"ringfold: rank {rank} ends the job: {one.broken}")
                end_job(1)
        try:
            leave(group, PATIENCE_S)
        except PeerLost as lost:
            say(f"ringfold: rank {group.rank} ends the job: {lost}")
            end_job(1)
        group.close()


def _mpi_is_over() -> bool:
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_finalized())
