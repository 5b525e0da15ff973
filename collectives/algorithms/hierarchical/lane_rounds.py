"""How arrays are cut into lanes, and lanes into rounds."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.algorithms.hierarchical.crossing import Crossing
from collectives.laid import Piece, layout
from collectives.partition import even_bounds


class LaneRounds:
    """How arrays are cut into lanes and rounds."""

    def __init__(self, crossing: Crossing, sizes: Sequence[int]) -> None:
        """Cut arrays of these sizes, laid end to end in mind."""
        lanes = crossing.lanes
        self._mine, self._length = lanes.mine, crossing.length
        self._layout = layout(tuple(sizes), lanes.count, 0, crossing.length)
        self._blocks = even_bounds(sum(sizes), lanes.count)

    def __len__(self) -> int:
        return len(self._layout)

    def pieces(self, number: int) -> list[Piece]:
        """Return the pieces of all lanes that go in a round; none before or after."""
        if not 0 <= number < len(self):
            return []
        step = self._layout[number]
        return [*step.own, *step.others]

    def loads(self, number: int) -> list[tuple[int, int, int]]:
        """Return what this rank carries in a round: lane, its index, its elements."""
        if not 0 <= number < len(self):
            return []
        return [
            (lane, index, min(self._length, size))
            for index, lane in enumerate(self._mine)
            if (size := self._left(lane, number)) > 0
        ]

    def _left(self, lane: int, number: int) -> int:
        return self._blocks[lane + 1] - self._blocks[lane] - number * self._length
