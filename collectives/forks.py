"""Forked children: they refuse collectives, and end without touching the MPI.

A child of `os.fork` has its parent's connections, queues and shared memory, but none of
its threads. Whatever it does with MPI it does to the parent, and `MPI_Finalize`, which
mpi4py calls when any interpreter with MPI in it ends, hangs both. So a child is marked
here: its communicators are unusable, and it ends by `os._exit`, with the exit status
that it would have had. What the parent has registered with `atexit` does not run in it.

Nothing is done where MPI was not yet running when the process forked.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import weakref
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from collectives import tracefile
from collectives.ending import CLOSED
from collectives.errors import BrokenCommunicatorError
from collectives.recorder import here

INTERRUPTED = 130  # what a shell reports after Ctrl-C


class Breakable(Protocol):
    """What can be made unusable: a group."""

    broken: str
    closed: bool


_protected: weakref.WeakSet[Breakable] = weakref.WeakSet()
_child = ""
_exit_code: Any = None
_last_error: Any = None


def protect(group: Breakable) -> None:
    """Make `group` unusable in children that are forked from now on."""
    _protected.add(group)


def refuse() -> None:
    """Raise in a forked child.

    Raises:
        BrokenCommunicatorError: this process was forked from one that uses MPI.
    """
    if _child:
        raise BrokenCommunicatorError(_child)


def _in_child() -> None:
    """Turn this process, which has just been forked, into one without MPI."""
    global _child, _last_error
    module = sys.modules.get("mpi4py.MPI")
    if module is None or not module.Is_initialized() or module.Is_finalized():
        return
    _child = (
        f"this process was forked from rank {here.rank}; a forked child cannot use MPI"
    )
    tracefile.here.stop()
    for group in list(_protected):
        group.broken, group.closed = _child, True
    _last_error = getattr(sys, "last_value", None)
    atexit.register(_leave)
    _watch_exit_code()


def _leave() -> None:
    """End this process before anybody finalizes the MPI."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(*CLOSED):
            stream.flush()
    error = getattr(sys, "last_value", None)
    if error is not _last_error:  # the interpreter keeps what nobody has caught there
        os._exit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)
    if _exit_code is None or isinstance(_exit_code, int):
        os._exit((_exit_code or 0) & 0xFF)
    os._exit(1)  # of sys.exit("text")


def _watch_exit_code() -> None:
    """Keep the code of the SystemExit that ends the interpreter.

    No exit function is told the status. The interpreter asks the exception for its
    `code`, though, and it is the only one to ask from outside of any Python function.
    So let the attribute tell us. This type belongs to a process that is on its own now.
    """
    names = gc.get_referents(SystemExit.__dict__)[0]
    member = names["code"]

    def code(error: SystemExit) -> Any:
        global _exit_code
        value = member.__get__(error)
        if sys._getframe().f_back is None:
            _exit_code = value
        return value

    names["code"] = property(code, member.__set__, member.__delete__)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
    if sys.version_info < (3, 12):  # there sys.exit raises what is no exception yet
        real = sys.exit
        for module in (sys, sys.modules["__main__"]):
            for name, value in list(vars(module).items()):
                if value is real:
                    setattr(module, name, _exit)


def _exit(status: Any = None, /) -> NoReturn:
    raise SystemExit(status)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
