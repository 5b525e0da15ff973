"""A memory fence, for processors that let stores overtake each other.

Who announces in shared memory that something is there must have stored the thing before
the announcement, and who has read the announcement must not have read the thing before
it. x86 keeps that order by itself, and `fence` is None there. Elsewhere it has to be
asked for, and Python has no word for it; the system call `membarrier` does it for all
processes that have registered.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable

ORDERED = {"x86_64", "AMD64", "i386", "i686"}
SYSTEM_CALL = {"x86_64": 324, "aarch64": 283, "ppc64le": 365, "riscv64": 283}
GLOBAL_EXPEDITED, REGISTER_GLOBAL_EXPEDITED = 2, 4


def membarrier(machine: str) -> Callable[[], None]:
    """Return a fence between all processes that have called this.

    Raises:
        OSError: this system has none.
    """
    number = SYSTEM_CALL.get(machine)
    if number is None:
        raise OSError(f"no memory fence is known for {machine}")
    call = ctypes.CDLL(None, use_errno=True).syscall
    if call(number, REGISTER_GLOBAL_EXPEDITED, 0):
        raise OSError(ctypes.get_errno(), "membarrier")

    def fence() -> None:
        call(number, GLOBAL_EXPEDITED, 0)

    return fence


def _missing() -> None:
    """Do nothing: late stores are waited for, see agreement.py; no window is made."""


def _find() -> Callable[[], None] | None:
    machine = platform.machine()
    if machine in ORDERED:
        return None
    try:
        return membarrier(machine)
    except (OSError, AttributeError):
        return _missing


fence = _find()
"""Call it before announcing, and after having read an announcement; None: no need."""
trusted = fence is not _missing
"""Whether memory can be handed over at all."""
