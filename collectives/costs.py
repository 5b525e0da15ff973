"""What a call costs: the moves it makes, times what each kind of move takes.

A *move* is something that the busiest rank does once, and on which it waits: one
exchange with a peer, one hand-over, bytes through the window. What a move of so many
bytes takes is a *curve*, measured at a few sizes by `ringfold tune`: a straight line
alpha + beta n would be wrong by a factor of two in the middle, where the MPI changes
its protocol and arrays leave the caches (parametrized LogP: Kielmann, Bal, Verstoep,
"Fast measurement of LogP parameters", 2000).

Which moves an algorithm makes is in moves.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Curve = tuple[tuple[float, float], ...]
"""`(bytes, microseconds)`, ascending in bytes."""

KINDS = {
    "call": "what a call takes before its algorithm: to prepare and to agree",
    "mail": "a whole all-reduce that is done when the ranks of a host have agreed",
    "hand_over": "all ranks of a host wait for each other",
    "store": "every rank puts bytes into the window, and takes as many out of it, with "
    "a hand-over for each slot",
    "reduce": "every rank adds two arrays in its own memory",
    "read": "every rank reads a peer's memory",
    "near_copy": "every rank exchanges bytes with others on its host",
    "near_combine": "the same, and adds what comes to what it has",
    "far_copy": "one rank of each host exchanges bytes with one on another host",
    "far_combine": "the same, and adds",
}
"""Kinds of moves. Bytes are those that one rank sends, stores, reads or adds; for
`far`, those that leave a host in that step, of all of its ranks."""

BY = " by "


def whole(collective: str, algorithm: str) -> str:
    """Return the kind of a whole call; of no use for another number of ranks."""
    return f"{collective}{BY}{algorithm}"


class Move(NamedTuple):
    """So many bytes, in one way, so many times one after the other."""

    kind: str
    nbytes: float = 0.0
    times: float = 1.0


@dataclass(frozen=True)
class Costs:
    """A curve for each kind of move."""

    curves: Mapping[str, Curve]

    def knows(self, moves: Iterable[Move]) -> bool:
        """Tell whether there is a curve for each of these."""
        return all(move.kind in self.curves for move in moves)

    def price_us(self, moves: Iterable[Move]) -> float:
        """Return the microseconds that the moves take, one after the other.

        Raises:
            KeyError: there is no curve for one of them.
        """
        return sum(m.times * on(self.curves[m.kind], m.nbytes) for m in moves)

    def without_whole(self) -> Costs:
        """Return those that do not depend on how many ranks there are."""
        return Costs({kind: c for kind, c in self.curves.items() if BY not in kind})

    def over(self, other: Costs) -> Costs:
        """Return these curves, and the other's where there are none."""
        return Costs({**other.curves, **self.curves})


def on(curve: Curve, nbytes: float) -> float:
    """Return the microseconds for so many bytes.

    Straight lines between the points; beyond the last one, as many bytes a second as
    there.
    """
    last_bytes, last_us = curve[-1]
    if nbytes >= last_bytes:
        return last_us * nbytes / last_bytes if last_bytes else last_us
    if nbytes <= curve[0][0]:
        return curve[0][1]
    for (low, low_us), (high, high_us) in pairwise(curve):
        if nbytes <= high:
            return low_us + (high_us - low_us) * (nbytes - low) / (high - low)
    raise AssertionError(f"{curve} does not ascend")


def line(alpha_us: float, gbs: float) -> Curve:
    """Return the curve of a latency, and of a rate in GB/s (1e9)."""
    return tuple((n, alpha_us + n / gbs / 1e3) for n in (0.0, 1 << 40))


def alpha_beta(curve: Curve) -> tuple[float, float]:
    """Return latency in microseconds and rate in GB/s, as its two ends have them."""
    nbytes, last_us = curve[-1]
    return curve[0][1], nbytes / last_us / 1e3 if nbytes else 0.0
