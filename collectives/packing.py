"""Many arrays, few packs: which arrays travel together, and copying them in and out.

A **pack** is several arrays of one dtype laid end to end and moved as one. Packs are a
pure function of the list: the same on every rank, whatever the timing. Arrays that fill
a pack on their own travel alone, straight from and to the caller's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from collectives.kernels import Array
from collectives.partition import bounds_of

AUTO_PACK_BYTES = 1 << 20  # stays in a core's L2 cache between packing and unpacking


class Pack(NamedTuple):
    """The arrays of one pack."""

    dtype: np.dtype[Any]
    members: tuple[int, ...]
    """Positions in the list."""
    elements: int
    """Their elements together."""


def make_packs(
    dtypes: Sequence[np.dtype[Any]],
    sizes: Sequence[int],
    bytes_per_pack: int = 0,
    endless: bool = False,
) -> list[Pack]:
    """Cut a list of arrays into packs of at most `bytes_per_pack`.

    Args:
        dtypes: what each array travels as; arrays of different dtypes are never mixed.
        sizes: elements of each array; may be 0.
        bytes_per_pack: 0 means `AUTO_PACK_BYTES`. An array of that size or larger is a
            pack of its own.
        endless: never close a pack: what travels through a window needs no buffer.

    Returns:
        Packs in the order of their first member; every position in exactly one.
    """
    limit = bytes_per_pack or AUTO_PACK_BYTES
    packs: list[Pack] = []
    open_packs: dict[np.dtype[Any], int] = {}
    for position, (dtype, size) in enumerate(zip(dtypes, sizes, strict=True)):
        place = open_packs.get(dtype)
        room = 0 if place is None else limit - packs[place].elements * dtype.itemsize
        room = limit if endless else room
        if size * dtype.itemsize >= limit:
            packs.append(Pack(dtype, (position,), size))
        elif place is not None and size * dtype.itemsize <= room:
            old = packs[place]
            packs[place] = Pack(dtype, (*old.members, position), old.elements + size)
        else:
            open_packs[dtype] = len(packs)
            packs.append(Pack(dtype, (position,), size))
    return packs


def pack_into(buffer: Array, flats: Sequence[Array]) -> None:
    """Lay flat arrays end to end in `buffer`, which they fill."""
    np.concatenate(flats, out=buffer)


def unpack(buffer: Array, sizes: Sequence[int]) -> list[Array]:
    """Return views of the arrays that were laid into `buffer`."""
    return [buffer[low:high] for low, high in pairwise(bounds_of(sizes))]
