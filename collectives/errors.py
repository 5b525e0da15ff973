"""One class per way to fail, each also the builtin that a caller would catch."""

from __future__ import annotations

import re

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """Leave out what differs between ranks where nothing else does."""
    return ADDRESS.sub("", text)


class CollectiveError(Exception):
    """Base of everything that Ringfold raises on purpose."""

    def __init__(self, text: str = "") -> None:
        super().__init__(without_addresses(text))


class InvalidArgumentError(CollectiveError, ValueError):
    """An argument has a value that no call could accept; nothing was moved."""


class UnsupportedError(CollectiveError, TypeError):
    """A valid request that this dtype, op, algorithm or machine cannot serve."""


class MismatchError(CollectiveError, ValueError):
    """The ranks made different calls; all of them raise this, `out` untouched."""


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """The deadline passed; the text names the ranks that did not arrive."""


class PeerFailedError(CollectiveError, ConnectionError):
    """A rank that this call needs is dead or has left the job."""


class BrokenCommunicatorError(CollectiveError, RuntimeError):
    """An earlier call on this communicator timed out or lost a peer."""


class DeviceError(CollectiveError, RuntimeError):
    """A GPU's own library failed in the middle of a call; the group is broken."""


class ExhaustedError(CollectiveError, RuntimeError):
    """The MPI has no communicator left for a new group; `close()` some."""


class LaunchError(CollectiveError, RuntimeError):
    """The launcher and the MPI library disagree about the job."""
