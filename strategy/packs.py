"""Cutting a list of arrays into what moves together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from strategy.values import Array


def group_by_size(arrays: Sequence[Array], bytes_per_pack: int) -> list[list[Array]]:
    """Cut a list into packs, in order; 0 bytes means one pack of everything.

    A pack is closed once it holds more than `bytes_per_pack`, so it may exceed that by
    up to one array.
    """
    if not bytes_per_pack:
        return [list(arrays)] if arrays else []
    packs: list[list[Array]] = []
    room = 0
    for array in arrays:
        if not packs or room < 0:
            packs.append([])
            room = bytes_per_pack
        packs[-1].append(array)
        room -= array.nbytes
    return packs


def concat_and_split(arrays: Sequence[Array], num_packs: int) -> list[Array]:
    """Return arrays of one dtype as so many flat packs; the last takes the remainder.

    Without packs to make, or arrays, the list is empty.
    """
    if not num_packs or not arrays:
        return []
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    size = flat.size // num_packs
    bounds = [*(size * number for number in range(num_packs)), flat.size]
    return [flat[low:high] for low, high in pairwise(bounds)]


def split_again(packs: Sequence[Array], like: Sequence[Array]) -> list[Array]:
    """Return what `concat_and_split` has packed, in the shapes of `like`."""
    flat = np.concatenate(packs)
    bounds = np.cumsum([0, *(array.size for array in like)])
    return [
        flat[low:high].reshape(array.shape)
        for array, (low, high) in zip(like, pairwise(bounds), strict=True)
    ]
