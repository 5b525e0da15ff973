"""Registered arrays on devices: memory that the peers read where it is.

As on the host (registered.py), to make one is a local affair, and its memory goes back
when its last view is gone. What differs is that others can have it only after they have
been told, and that it must not be freed before they have closed it. So a group tells of
*news*: of arrays that a rank has used in a call for the first time, and of those that
are gone. It does so at the end of a call in which some rank had news, all ranks
together; until then an array goes through the window like any other. Nobody waits for
news, and a finalizer does nothing but note that an array is gone.
"""

from __future__ import annotations

import pickle
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from collectives.errors import UnsupportedError
from collectives.gpu.arrays import cupy
from collectives.kernels import Array
from collectives.transport.cuda_ipc import Exported, Opened, array_at, export, free

Tell = Callable[[bytes], list[bytes]]
"""Gives all ranks what every rank gives, in rank order."""

OFFSET_BITS = 42
MOST = 1 << 20  # numbers that find room beside an offset in a word of the board


class _Holder:
    """Lives as long as an array or a view of it."""


class _Exports:
    """The registered arrays of this process."""

    def __init__(self) -> None:
        self.there: dict[int, Exported] = {}
        """By number; also those that are gone, while somebody may have them open."""
        self.gone: set[int] = set()
        self.told: Counter[int] = Counter()
        """In how many groups others have been told of one."""

    def empty(self, shape: Any, dtype: Any) -> Array:
        """See the function of that name."""
        like: Array = np.broadcast_to(np.empty((), dtype), shape)
        if like.dtype.hasobject:
            raise UnsupportedError(
                f"dtype {like.dtype}; wanted numbers, not references"
            )
        self.free_untold()
        xp = cupy()
        if not like.size:
            empty: Array = xp.empty(like.shape, like.dtype)
            return empty
        try:
            memory = export(like.nbytes)
        except xp.cuda.runtime.CUDARuntimeError as error:
            if "MemoryAllocation" not in str(error):  # cannot be exported here
                plain: Array = xp.empty(like.shape, like.dtype)
                return plain
            raise MemoryError(f"no memory for {like.nbytes} bytes: {error}") from None
        self.there[memory.number] = memory
        holder = _Holder()
        weakref.finalize(holder, self._let_go, memory.number).atexit = False
        flat = array_at(memory, 0, like.dtype, like.size, keep=holder)
        array: Array = flat.reshape(like.shape)
        return array

    def _let_go(self, number: int) -> None:
        """Note that an array is gone; may be called at any moment, by any thread."""
        self.gone.add(number)

    def free_untold(self) -> None:
        """Free the memory of arrays that are gone, and that nobody has been told of."""
        for number in list(self.gone):
            if number not in self.told:
                self.gone.discard(number)
                memory = self.there.pop(number, None)
                if memory is not None:
                    free(memory)

    def number_of(self, pointer: int, nbytes: int) -> int:
        """Return which array some memory is a part of; 0: none."""
        for memory in list(self.there.values()):
            low = pointer - memory.pointer
            if low >= 0 and low + nbytes <= memory.nbytes:
                return memory.number
        return 0


_exports = _Exports()
free_untold = _exports.free_untold


def empty(shape: Any, dtype: Any) -> Array:
    """Return a registered array on the current device.

    Where memory cannot be exported it is an ordinary one. It takes a multiple of 2 MiB,
    which goes back to the device when its last view is gone: at the next such array or
    call, and where others have it open, after they have closed it.

    Raises:
        MemoryError: the device has no memory for it.
        UnsupportedError: there is no device, or the elements are Python objects.
    """
    return _exports.empty(shape, dtype)


class Shared:
    """The arrays that the ranks of a group have told each other of."""

    def __init__(self, rank: int, ranks: int) -> None:
        """Begin without any; this is `rank`."""
        self._rank = rank
        self._told: set[int] = set()
        self._fresh: set[int] = set()
        self._apart: set[int] = set()
        """What some rank could not open; it goes through the window for ever."""
        self._theirs: list[dict[int, Opened]] = [{} for _ in range(ranks)]

    @property
    def news(self) -> bool:
        """Whether this rank has something to tell."""
        return bool(self._fresh) or not _exports.gone.isdisjoint(self._told)

    def place_of(self, array: Any) -> int:
        """Return a number by which the others find an array; -1 if they do not."""
        pointer: int = array.data.ptr
        number = _exports.number_of(pointer, array.nbytes)
        if not number or number in self._apart or number >= MOST:
            return -1
        if number not in self._told:
            self._fresh.add(number)
            return -1
        return number << OFFSET_BITS | pointer - _exports.there[number].pointer

    def array(self, rank: int, place: int, like: Array) -> Array:
        """Return a rank's array, such as this one, by its number."""
        number, offset = place >> OFFSET_BITS, place & (1 << OFFSET_BITS) - 1
        own = rank == self._rank
        memory = _exports.there[number] if own else self._theirs[rank][number]
        return array_at(memory, offset, like.dtype, like.size)

    def exchange(self, tell: Tell) -> None:
        """Tell what is new, and close and free what is gone; all ranks together."""
        fresh = [number for number in self._fresh if number in _exports.there]
        gone = _exports.gone & self._told
        news = {number: _exports.there[number].offer for number in fresh}
        self._fresh.clear()
        refused = set()
        for rank, told in enumerate(tell(pickle.dumps((news, gone)))):
            offers, numbers = pickle.loads(told)
            if rank == self._rank:
                continue
            for number in numbers:
                self._close(rank, number)
            for number, offer in offers.items():
                try:
                    self._theirs[rank][number] = Opened(offer)
                except Exception:  # the driver's reasons are many; this one is enough
                    refused.add((rank, number))
        # All have closed what is gone once all have said what they could not open.
        for answer in tell(pickle.dumps(refused)):
            self._apart |= {n for rank, n in pickle.loads(answer) if rank == self._rank}
        for number in fresh:
            self._told.add(number)
            _exports.told[number] += 1
        self._forget(gone)

    def _close(self, rank: int, number: int) -> None:
        opened = self._theirs[rank].pop(number, None)
        if opened is not None:
            opened.close()

    def _forget(self, numbers: set[int]) -> None:
        for number in numbers:
            self._told.discard(number)
            self._apart.discard(number)
            _exports.told[number] -= 1
            if not _exports.told[number]:
                del _exports.told[number]
        _exports.free_untold()

    def leave(self) -> None:
        """Close what the others have: this rank reads it no more."""
        for rank, arrays in enumerate(self._theirs):
            for number in list(arrays):
                self._close(rank, number)

    def free(self) -> None:
        """Free what is gone, after all others have left; the rest lives on."""
        self._forget(set(self._told))
