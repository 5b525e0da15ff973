"""Registered arrays: NumPy arrays that lie in the memory shared by a host.

To make one is a local affair: it is carved from the rank's own heap, and no other rank
needs to know. In a call the ranks tell each other where their arrays lie, and read them
there. After a call has returned no rank reads another one's array, so its owner may
write into it, or let go of it, at any time. When the last view of it is gone, its
memory goes back to the heap; nothing has to be freed, and nobody is asked.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import numpy as np

from collectives.arena import Arena
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.kernels import Array

GENERATIONS = 2  # areas for common results, used by turns


def empty(arena: Arena | None, shape: Any, dtype: Any) -> Array:
    """Return a registered array; an ordinary one where no memory is shared.

    Raises:
        MemoryError: the machine has no memory for it.
        UnsupportedError: its elements are Python objects.
    """
    if arena is None:
        return np.empty(shape, dtype)
    like: Array = np.broadcast_to(np.empty((), dtype), shape)
    if like.dtype.hasobject:
        raise UnsupportedError(f"dtype {like.dtype}; wanted numbers, not references")
    if not like.size:
        return np.empty(shape, dtype)
    offset = arena.carve(like.nbytes)
    memory = arena.view(offset, like.nbytes)
    array: Array = np.ndarray(like.shape, like.dtype, memory)
    weakref.finalize(array, arena.let_go, offset).atexit = False
    return array


def place_of(arena: Arena, flat: Array) -> int:
    """Return where in the arena a contiguous array lies; -1 if it does not."""
    base: Any = flat.base
    if base is None:
        return -1
    if base is not arena.memory and getattr(base, "base", None) is not arena.memory:
        return -1
    return flat.ctypes.data - arena.address


class _Shared:
    """The type of `SHARED`."""

    def __repr__(self) -> str:
        return "collectives.SHARED"


SHARED: Final = _Shared()
"""As `out`: the result is to be one copy for all ranks of a host, a `SharedResult`."""


class SharedResult:
    """A result that lies once in the memory of a host, for all its ranks to read.

    It lasts until the second next call with `out=SHARED` on this communicator; whoever
    needs it longer takes a `copy()`.
    """

    def __init__(self, array: Array, results: Results | None) -> None:
        """Wrap `array`, the latest of the `results`; None: it lasts for ever."""
        self._array = array
        self._array.flags.writeable = False
        self._results = results
        self._number = results.made if results is not None else 0

    @property
    def array(self) -> Array:
        """The result, read-only.

        Raises:
            InvalidArgumentError: two later results have been made since, or the
                communicator was closed.
        """
        gone = self._results.gone(self._number) if self._results is not None else ""
        if gone:
            raise InvalidArgumentError(
                f"a SharedResult lasts until the second next call; {gone}; take a "
                "copy() of what is needed longer"
            )
        return self._array

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The array's dtype."""
        return self._array.dtype

    def copy(self) -> Array:
        """Return an array of the caller's own."""
        mine: Array = self.array.copy()
        return mine

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Let NumPy read it."""
        return np.array(self.array, dtype, copy=copy)

    def __repr__(self) -> str:
        """Return shape and dtype."""
        return f"<SharedResult {self.dtype} {self.shape}>"


class Results:
    """The areas of a group's common results; one rank has carved them."""

    def __init__(self, arena: Arena) -> None:
        """Begin without any."""
        self._arena = arena
        self._areas: list[tuple[int, int, int]] = []
        """Place, room, and the number of the latest result in it; the oldest first."""
        self._closed = False
        self.made = 0
        """How many results there have been."""

    def gone(self, number: int) -> str:
        """Return why a result does not exist any more; empty if it does."""
        if self._closed:
            return "its communicator was closed"
        since = self.made - number
        return f"{since} have been made since" if since >= GENERATIONS else ""

    def place(self, nbytes: int, poison: bool) -> int:
        """Return where the next result goes, on the rank that carves; -1: nowhere.

        With `poison` what has expired is overwritten by NaN, and for that lasts for one
        turn longer.
        """
        number = self.made + 1
        expired = [area for area in self._areas if number - area[2] >= GENERATIONS]
        for place, room, _ in expired if poison else ():
            np.ndarray(room, np.uint8, self._arena.view(place, room))[:] = 0xFF
        place, room = -1, 0
        if expired and number - expired[0][2] >= GENERATIONS + poison:
            self._areas.remove(expired[0])
            place, room, _ = expired[0]
        if room < nbytes:
            if place >= 0:
                self._arena.release(place)
            try:
                place, room = self._arena.carve(nbytes), nbytes
            except MemoryError:
                return -1
        self._areas.append((place, room, number))
        return place

    def close(self) -> None:
        """Give the areas back."""
        self._closed = True
        for place, _, _ in self._areas:
            self._arena.release(place)
        self._areas = []
