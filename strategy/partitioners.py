"""How a variable is cut along its first axis: functions of shape and dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike


class Partitioner:
    """Says into how many parts an array is cut along each axis: `[parts, 1, 1, …]`."""

    def __call__(self, shape: Sequence[int], dtype: DTypeLike) -> list[int]:
        """Return the parts along each axis, of which only the first is ever cut."""
        parts = min(self.parts(tuple(shape), np.dtype(dtype)), shape[0])
        return [max(1, parts)] + [1] * (len(shape) - 1)

    def parts(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> int:
        """Return how many parts there would be if rows did not run out."""
        raise NotImplementedError


class FixedShardsPartitioner(Partitioner):
    """As many parts as given, as long as there are rows."""

    def __init__(self, num_shards: int) -> None:
        self.num_shards = _positive("num_shards", num_shards)

    def parts(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> int:
        """Return the number given."""
        return self.num_shards


class MinSizePartitioner(Partitioner):
    """As many parts as can have so many bytes each, and at most `max_shards`."""

    def __init__(
        self,
        min_shard_bytes: int = 256 << 10,
        max_shards: int = 1,
        bytes_per_string: int = 16,
    ) -> None:
        self.min_shard_bytes = _positive("min_shard_bytes", min_shard_bytes)
        self.max_shards = _positive("max_shards", max_shards)
        self.bytes_per_string = _positive("bytes_per_string", bytes_per_string)

    def parts(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> int:
        """Return all bytes by those of a part, rounded up."""
        nbytes = math.prod(shape) * _item_bytes(dtype, self.bytes_per_string)
        return min(self.max_shards, math.ceil(nbytes / self.min_shard_bytes))


class MaxSizePartitioner(Partitioner):
    """As few parts as can have no more bytes each, and at most `max_shards`."""

    def __init__(
        self,
        max_shard_bytes: int,
        max_shards: int | None = None,
        bytes_per_string: int = 16,
    ) -> None:
        self.max_shard_bytes = _positive("max_shard_bytes", max_shard_bytes)
        self.max_shards = max_shards and _positive("max_shards", max_shards)
        self.bytes_per_string = _positive("bytes_per_string", bytes_per_string)

    def parts(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> int:
        """Return the rows by those that fit into a part, which is one at least."""
        row = math.prod(shape[1:]) * _item_bytes(dtype, self.bytes_per_string)
        parts = math.ceil(shape[0] / max(1, self.max_shard_bytes // row))
        return min(parts, self.max_shards) if self.max_shards else parts


def _item_bytes(dtype: np.dtype[np.generic], bytes_per_string: int) -> int:
    return bytes_per_string if dtype.kind in "SUO" else dtype.itemsize


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} is {value}; wanted 1 or more")
    return value
