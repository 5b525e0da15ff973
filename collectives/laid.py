"""Several arrays seen as one: end to end in mind, each where it is in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from collectives.kernels import Array
from collectives.partition import bounds_of


class Laid:
    """Flat arrays of one dtype, at least one."""

    def __init__(self, flats: Sequence[Array]) -> None:
        """Lay out the arrays in this order."""
        self.flats = tuple(flats)
        self._bounds = bounds_of([flat.size for flat in flats])
        self.size = self._bounds[-1]
        self.dtype = flats[0].dtype

    def pieces(self, span: slice) -> list[tuple[int, Array]]:
        """Return what of each array lies in a span, and where in it that begins."""
        flats, bounds, low, high = self.flats, self._bounds, span.start, span.stop
        if len(flats) == 1:
            return [(0, flats[0][span])]
        found, place = [], bisect_right(bounds, low) - 1
        while place < len(flats) and bounds[place] < high:
            start, origin = max(low, bounds[place]), bounds[place]
            stop = min(high, bounds[place + 1])
            if start < stop:
                flat = flats[place][start - origin : stop - origin]
                found.append((start - low, flat))
            place += 1
        return found
