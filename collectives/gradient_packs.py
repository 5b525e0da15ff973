"""Registered memory for lists of arrays that are reduced again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from collectives.buffers import as_array
from collectives.kernels import Array
from collectives.partition import bounds_of

BUFFERS = 2


class Views(tuple[Array, ...]):
    """One array for each of a list, which together fill a few registered ones.

    A tuple: another array in the place of one would not be what is reduced.
    """

    flats: tuple[Array, ...]

    @classmethod
    def of(cls, views: Sequence[Array], flats: Sequence[Array]) -> Views:
        """Return the views of these flat arrays."""
        made = cls(views)
        made.flats = tuple(flats)
        return made


class GradientPacks:
    """Two sets of arrays in registered memory, to be filled and reduced by turns.

    While one set is still being used, the next step may fill the other.
    """

    def __init__(
        self, empty: Callable[[int, Any], Array], arrays: Sequence[Any]
    ) -> None:
        """Make both sets.

        Args:
            empty: what makes a flat array of a length and a dtype.
            arrays: one for each of the arrays wanted, of its shape and dtype.
        """
        likes = [as_array(array) for array in arrays]
        self._sets = [_laid_out(empty, likes) for _ in range(BUFFERS)]
        self._turn = 0
        self.nbytes = sum(flat.nbytes for one in self._sets for flat in one.flats)
        """Bytes of memory in both sets."""

    def next(self) -> Views:
        """Return the arrays of the set whose turn it is, as it was left."""
        self._turn = (self._turn + 1) % BUFFERS
        return self._sets[self._turn]


def _laid_out(empty: Callable[[int, Any], Array], likes: list[Array]) -> Views:
    """Return views of one flat array for each dtype, in the order of `likes`."""
    views: list[Array] = [np.empty(0)] * len(likes)
    flats = []
    for dtype in dict.fromkeys(like.dtype for like in likes):
        places = [place for place, like in enumerate(likes) if like.dtype == dtype]
        bounds = bounds_of([likes[place].size for place in places])
        flat = empty(bounds[-1], dtype)
        flats.append(flat)
        for place, (low, high) in zip(places, pairwise(bounds), strict=True):
            views[place] = flat[low:high].reshape(likes[place].shape)
    return Views.of(views, flats)
