"""What moved, for people who ask what became of their hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from strategy.options import CommunicationImplementation, CommunicationOptions
from strategy.reduce_op import ReduceOp


@dataclass(frozen=True)
class Communication:
    """How a list of values was reduced: `strategy.extended.last_communication`."""

    reduce_op: ReduceOp
    ops: str
    """The name of the cross-device operations that did it."""
    implementation: CommunicationImplementation
    """What was asked for."""
    tensors: int
    pack_bytes: tuple[int, ...]
    """The bytes in each pack, in the order in which they were moved."""
    ranks: int = 1
    replicas: int = 1
    """The replicas of this process."""
    ignored: str = ""
    """The hints that had no effect, and why; '' where all had theirs."""
    choose: Callable[[int], str] = field(
        default=lambda nbytes: "local", repr=False, compare=False
    )

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Who moves a pack of each size: names of `ALGORITHMS["all_reduce"]`.

        "local" where everything is in this process. With AUTO it is what would be
        taken now; `collectives.world().choose` also says why.
        """
        return tuple(self.choose(nbytes) for nbytes in self.pack_bytes)


def in_this_process(
    ops: object,
    reduce_op: ReduceOp,
    options: CommunicationOptions,
    values: Sequence[Sequence[Any]],
    packed: bool = False,
    by: str = "local",
) -> Communication:
    """Describe a reduction of values, each with a part for every replica."""
    default = CommunicationOptions()
    unused = [
        name
        for name, value in vars(options).items()
        if value != getattr(default, name)
        and not (by == "nccl" and value is CommunicationImplementation.NCCL)
    ]
    sizes = tuple(getattr(parts[0], "nbytes", 0) for parts in values)
    return Communication(
        reduce_op,
        type(ops).__name__,
        options.implementation,
        len(values),
        (sum(sizes),) if packed else sizes,
        replicas=max(len(parts) for parts in values),
        ignored=f"{', '.join(unused)}: nothing leaves this process" if unused else "",
        choose=lambda nbytes: by,
    )
