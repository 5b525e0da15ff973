"""A call in a few words: what it is, its digest, the difference between two of them.

Every member of a call describes it. Equal descriptors have equal *words* (64 bits,
digest and sequence number together), so that one comparison of integers tells that
all members make the same call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any

from collectives.errors import without_addresses

WORD_MASK = (1 << 63) - 1


@dataclass(frozen=True)
class Descriptor:
    """What one rank asks for; fields in the order in which differences are reported."""

    collective: str
    sequence: int = 0
    invalid: str = ""
    """Why this rank's own arguments cannot work; empty when they can."""
    dtype: str = ""
    op: str = ""
    shape: tuple[Any, ...] = ()
    """Sizes per axis; `-1` where ranks may differ. For lists, one shape per array."""
    root: int = -1
    axis: int = -1
    splits: tuple[int, ...] = ()
    """Bounds of the ranks' blocks, where the caller may choose them."""
    members: tuple[int, ...] = ()
    """The ranks of a group that is to be made."""
    packs: int = -1
    """`bytes_per_pack`, for lists."""
    result: str = ""
    """What is made of the result, where that is not each rank's own array."""
    options: str = ""
    """The options that must be the same, where these are told at all."""
    algorithm: str = ""
    """The algorithm that will run, after `auto` has chosen."""

    def __post_init__(self) -> None:
        """Leave addresses out of what is wrong."""
        if self.invalid:
            object.__setattr__(self, "invalid", without_addresses(self.invalid))

    @cached_property
    def digest(self) -> int:
        """63 bits of blake2b over what `DIGESTED` names."""
        text = repr([getattr(self, name) for name in DIGESTED])
        return (
            int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
            >> 1
        )

    def word(self, sequence: int, salt: int = 0) -> int:
        """Mix digest, sequence number and salt into a positive 63-bit integer."""
        return (self.digest + salt & WORD_MASK) ^ sequence

    def __str__(self) -> str:
        """Return the call as a person would write it."""
        if self.invalid:
            return f"{self.collective} with an invalid argument: {self.invalid}"
        known = [
            text
            for text, there in (
                (self.dtype, self.dtype),
                (self.op, self.op),
                (f"shape {self.shape}", self.dtype),
                (f"root {self.root}", self.root >= 0),
                (f"axis {self.axis}", self.axis >= 0),
                (f"blocks {self.splits}", self.splits),
                (f"members {list(self.members)}", self.members),
                (f"bytes_per_pack {self.packs}", self.packs >= 0),
                (self.algorithm, self.algorithm),
                (f"out {self.result}", self.result),
            )
            if there
        ]
        return f"{self.collective}({', '.join(known)})" if known else self.collective


DIGESTED = tuple(
    field.name
    for field in fields(Descriptor)
    if field.name not in ("sequence", "options")  # these are in the word by other ways
)


def difference(
    descriptors: Sequence[Descriptor],
) -> tuple[str, dict[Any, list[int]]] | None:
    """Find the first field that differs.

    Args:
        descriptors: one per rank, in rank order.

    Returns:
        The field's name and, per distinct value, the ranks that have it; None when all
        descriptors are equal.
    """
    for name in (f.name for f in fields(Descriptor)):
        ranks: dict[Any, list[int]] = {}
        for rank, descriptor in enumerate(descriptors):
            ranks.setdefault(getattr(descriptor, name), []).append(rank)
        if len(ranks) > 1:
            return name, ranks
    return None
