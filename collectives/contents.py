"""`check="full"`: compare what came out, for debugging.

Where every rank is to have the same result, the ranks compare digests of it after the
call. A difference means a fault in Ringfold, in the MPI or in the memory, or that
somebody wrote into the array meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np

from collectives.algorithms.small import all_gather_rows
from collectives.buffers import on_host
from collectives.errors import CollectiveError
from collectives.group import Group
from collectives.kernels import Array

SAME_EVERYWHERE = frozenset(
    ("all_reduce", "broadcast", "all_gather", "all_reduce_many", "broadcast_many")
)
_LONG = np.finfo(np.longdouble)
LONG_BYTES = -(-(1 + _LONG.nexp + _LONG.nmant) // 8)
"""Of a long double, which x86 pads from 10 bytes to 16."""


def compare(group: Group, collective: str, result: Any, timeout_s: float) -> None:
    """Raise the same error on all ranks unless all have the same result.

    Raises:
        CollectiveError: the bits of the results differ.
    """
    if collective not in SAME_EVERYWHERE:
        return
    state = blake2b(digest_size=8)
    for array in result if isinstance(result, list | tuple) else [result]:
        for bits in _bits(on_host(array)):
            state.update(bits)
    row = np.frombuffer(state.digest(), np.int64)
    digests = all_gather_rows(group, row, timeout_s)[:, 0].tolist()
    if len(set(digests)) > 1:
        shown = ", ".join(f"rank {r}: {d:x}" for r, d in enumerate(digests))
        raise CollectiveError(
            f"{collective} #{group.sequence}: different results on the ranks: {shown}"
        )


def _bits(array: Array) -> Iterator[bytes]:
    """Return what an array holds, without padding: nobody says what is in there."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from _bits(array[name])
    elif array.dtype.char in "gG":
        numbers = np.ascontiguousarray(array).reshape(-1).view(np.longdouble)
        whole = numbers.view(np.uint8).reshape(-1, numbers.itemsize)
        yield whole[:, :LONG_BYTES].tobytes()
    else:
        yield np.ascontiguousarray(array).tobytes()
