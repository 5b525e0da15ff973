"""How a dataset wants to be shared out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class AutoShardPolicy(Enum):
    """Which elements of a dataset a worker gets."""

    OFF = -1
    """All of them: the dataset differs by worker already, or shall be seen W times."""
    AUTO = 0
    """FILE where the source reads files, else DATA."""
    FILE = 1
    """The elements of every W-th file."""
    DATA = 2
    """Its part of every batch."""
    HINT = 3
    """Those that `shard(SHARD_HINT, SHARD_HINT)` in the pipeline leaves."""


@dataclass
class DistributeOptions:
    """The part of the options that is about several workers."""

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse a policy that is none, and names that nothing reads."""
        if name != "auto_shard_policy":
            raise AttributeError(f"no option {name}; there is auto_shard_policy")
        if not isinstance(value, AutoShardPolicy):
            raise TypeError(
                f"auto_shard_policy is {value!r}; wanted an AutoShardPolicy: "
                f"{' '.join(AutoShardPolicy.__members__)}"
            )
        super().__setattr__(name, value)


@dataclass
class Options:
    """What `Dataset.with_options` takes."""

    experimental_distribute: DistributeOptions = field(
        default_factory=DistributeOptions
    )
