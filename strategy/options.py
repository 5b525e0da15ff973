"""Hints for the communication of a strategy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple


class CommunicationImplementation(Enum):
    """Who moves the bytes: AUTO chooses by size and topology, the others do not."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


CollectiveCommunication = CommunicationImplementation  # its name before TensorFlow 2.4


@dataclass(frozen=True)
class CommunicationOptions:
    """Hints for all-reduce and gather, for a strategy or for one call."""

    bytes_per_pack: int = 0
    """Tensors moved as one message, in bytes; lower starts earlier, higher costs
    fewer messages; 0 leaves it to `collectives`."""

    timeout_seconds: float | None = None
    """Deadline of each call; lower notices a lost rank sooner; None or 0 keeps the
    deadline of `collectives`, which is finite."""

    implementation: CommunicationImplementation = CommunicationImplementation.AUTO
    """A member, or its name in any case."""

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        if self.bytes_per_pack < 0:
            raise ValueError(
                f"bytes_per_pack is {self.bytes_per_pack}; wanted 0 or more bytes"
            )
        if self.timeout_seconds is not None and self.timeout_seconds < 0:
            raise ValueError(
                f"timeout_seconds is {self.timeout_seconds}; wanted None, or 0 or more"
            )
        object.__setattr__(self, "implementation", _implementation(self.implementation))

    def merge(self, other: CommunicationOptions | None) -> CommunicationOptions:
        """Return these options with those that `other` sets laid over them."""
        if other is None:
            return self
        default = CommunicationOptions()
        given = {
            field: value
            for field, value in vars(other).items()
            if value != getattr(default, field)
        }
        return CommunicationOptions(**{**vars(self), **given})


class RunOptions(NamedTuple):
    """How `Strategy.run` runs; the first three are TensorFlow's, and for TPUs alone."""

    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: Any = None
    concurrent: bool = False
    """Let the replicas of this process run at the same time between their merge calls,
    instead of one by one. NumPy's loops overlap; what replicas share needs care."""


def _implementation(given: object) -> CommunicationImplementation:
    """Return the member that `given` is or names."""
    if isinstance(given, CommunicationImplementation):
        return given
    members = CommunicationImplementation.__members__
    if isinstance(given, str) and given.upper() in members:
        return members[given.upper()]
    raise ValueError(f"implementation is {given!r}; wanted one of: {' '.join(members)}")
