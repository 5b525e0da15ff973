"""Which algorithm a call gets, and why.

An explicit argument wins, then the communicator's option (`RINGFOLD_ALGORITHM`), then
`auto`: the thresholds below. Every rank decides for itself from facts that are the same
everywhere; the choice is part of the descriptor, so that a difference would be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectives.algorithms import ALGORITHMS, AUTO, TABLE, native
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.group import Group
from collectives.kernels import Kernel

# From how many bytes on an algorithm beats the smaller one's. Measured on 2 cores with
# `ringfold bench` on MPICH, Open MPI and Intel MPI; see docs/developers.md.
RING_ALL_REDUCE_BYTES = 4 << 20
SMALL_BYTES = 64 << 10


@dataclass(frozen=True)
class Choice:
    """An algorithm and the reason why it was taken."""

    algorithm: str
    reason: str


def choose(
    collective: str,
    nbytes: int,
    kernel: Kernel | None,
    group: Group,
    requested: str,
) -> Choice:
    """Choose the algorithm of a call.

    Args:
        collective: a key of `ALGORITHMS`.
        nbytes: size of the whole array as it travels.
        kernel: how it is reduced; None for calls that only move.
        group: the ranks.
        requested: a name or `auto`.

    Raises:
        InvalidArgumentError: no such algorithm for this collective.
        UnsupportedError: the algorithm cannot do it here.
    """
    known = ALGORITHMS[collective]
    if requested not in known:
        raise InvalidArgumentError(
            f"unknown algorithm {requested!r} for {collective}; "
            f"known: {' '.join(known)}"
        )
    refusal = _native_refusal(kernel, group)
    if requested != AUTO:
        if refusal and TABLE[collective][requested].needs_mpi:
            raise UnsupportedError(f"{collective} by {requested}: {refusal}")
        return Choice(requested, "asked for")
    return _automatic(collective, nbytes, refusal)


def _native_refusal(kernel: Kernel | None, group: Group) -> str:
    """Return why the MPI's own collectives are not eligible; empty when they are."""
    if group.native is None:
        return "this world runs without MPI"
    return native.refusal(kernel) if kernel is not None else ""


def _automatic(collective: str, nbytes: int, refusal: str) -> Choice:
    large = nbytes >= (SMALL_BYTES if refusal else RING_ALL_REDUCE_BYTES)
    size = f"{nbytes} bytes"
    if collective == "all_reduce" and large:
        return Choice("ring", f"{size}: bytes dominate")
    if not refusal:
        return Choice("native", f"{size}: steps dominate")
    names = [name for name, row in TABLE[collective].items() if not row.needs_mpi]
    return Choice(names[-1] if large else names[0], f"{size}; not native: {refusal}")
