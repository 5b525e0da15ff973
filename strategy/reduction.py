"""An all-reduce that goes on while its first results are being used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from strategy import nest


@dataclass(frozen=True)
class Pack:
    """Some of the leaves of a nest, which travel together."""

    places: Sequence[int]
    """Which leaves they are."""
    wait: Callable[[], Sequence[Any]]
    """Returns their results when they are there; may be called again."""


class Reduction:
    """What `ReplicaContext.start_all_reduce` returns: results that come pack by pack.

    ::

        reduction = context.start_all_reduce("MEAN", gradients, options)
        for place, gradient in reduction:   # the last leaves come first
            weights[place].assign_sub(rate * gradient)

    The arrays that are reduced belong to it until all results are there.
    """

    def __init__(self, structure: Any, packs: Sequence[Pack]) -> None:
        self._structure = structure
        self.packs = packs
        """The packs, in the order in which they arrive."""

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Give place and result of each leaf, as soon as its pack is there.

        Places count the leaves as `flatten` lists them: those of a list in its order.
        """
        for pack in self.packs:
            yield from zip(pack.places, pack.wait(), strict=True)

    def wait(self) -> Any:
        """Return all results, in the structure of the value."""
        leaves = dict(self)
        return nest.unflatten(
            self._structure, [leaves[place] for place in range(len(leaves))]
        )
