"""What a benchmark found: plain data, and the figures that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectives.bench.case import (
    IN_PLACE,
    ORDINARY,
    OUT_OF_PLACE,
    Case,
    Form,
    Size,
)
from collectives.bench.floor import ADDED

__all__ = [
    "DISTURBED",
    "Facts",
    "Measured",
    "Row",
    "average_busbw",
    "disturbed",
    "ratios",
    "summary",
    "total_wrong",
]

GB = 1e9
DISTURBED = 1.5


@dataclass(frozen=True)
class Measured:
    """One algorithm at one size and place.

    `seconds[rank, repetition]` is the mean duration of a call in that batch; `calls`
    the calls in a batch; `wrong` the wrong elements over all ranks, None if unchecked;
    `moved` what must move at least, over the size of the row.
    """

    seconds: NDArray[np.float64]
    calls: int
    wrong: int | None
    moved: float = 0.0

    @property
    def slowest(self) -> NDArray[np.float64]:
        """Seconds a call of each repetition: those of its slowest rank."""
        slowest: NDArray[np.float64] = self.seconds.max(axis=0)
        return slowest

    @property
    def time_us(self) -> dict[str, float]:
        """Smallest, median and largest repetition, in microseconds a call."""
        us = self.slowest * 1e6
        return summary(us) | {"max": float(us.max())}


def summary(figures: NDArray[np.float64]) -> dict[str, float]:
    """Return the smallest and the median: what algorithms are compared by."""
    return {"min": float(figures.min()), "median": float(np.median(figures))}


@dataclass(frozen=True)
class Row:
    """One algorithm at one size; a place that does not exist is missing.

    `chosen` is the algorithm behind `auto`; None where there was nothing to choose.
    `adding` is the addition of private arrays, timed in the same repetitions.
    """

    case: Case
    size: Size
    ranks: int
    algorithm: str
    chosen: str | None
    places: dict[str, Measured]
    form: Form = ORDINARY
    adding: Measured | None = None

    @property
    def name(self) -> str:
        """The algorithm, and the form of its arrays where that is not ordinary."""
        return f"{self.algorithm} {self.form}".rstrip()

    @property
    def headline(self) -> str:
        """The place by which algorithms are compared: in place where it exists."""
        return IN_PLACE if IN_PLACE in self.places else OUT_OF_PLACE

    def algbw(self, place: str) -> float:
        """Bytes over the median time, in GB/s (1e9)."""
        return self.size.nbytes / float(np.median(self.places[place].slowest)) / GB

    def busbw(self, place: str) -> float:
        """Return `algbw` times the factor of the collective, in GB/s."""
        return self.algbw(place) * self.case.factor(self.ranks)

    def floor_us(self, place: str) -> dict[str, float] | None:
        """Return what the bytes that must move would take at the speed of additions.

        By the fastest addition and by the median; None where no byte must move.
        """
        moved = self.places[place].moved
        if self.adding is None or not moved or not self.size.nbytes:
            return None
        share = moved / (ADDED * self.ranks)
        return {
            key: share * us for key, us in summary(self.adding.slowest * 1e6).items()
        }

    def over_floor(self, place: str) -> dict[str, float] | None:
        """Return time over floor: the fastest by the fastest, the median likewise."""
        floor_us, time_us = self.floor_us(place), self.places[place].time_us
        if floor_us is None:
            return None
        return {key: time_us[key] / us for key, us in floor_us.items()}


@dataclass(frozen=True)
class Facts:
    """Everything about a run but its figures; texts are ready to be printed.

    `processes` has one entry a rank: rank, pid, host, cores. `mpi` is None in a world
    without MPI. `memory` is its mode before and, when all is done, after.
    """

    collective: str
    dtype: str
    op: str
    root: int
    ranks: int
    hosts: tuple[str, ...]
    host_of: tuple[int, ...]
    processes: tuple[dict[str, Any], ...]
    versions: dict[str, str]
    mpi: str | None
    mpi_library: str | None
    topology: str
    command: str
    date: str
    settings: str
    method: str
    buffers: str
    memory: tuple[str, ...]
    notes: tuple[str, ...]
    baseline: str = "mpi"
    """What `vs` compares with, in short."""

    @property
    def host_map(self) -> dict[str, list[int]]:
        """The ranks on each host."""
        return {
            name: [rank for rank, host in enumerate(self.host_of) if host == index]
            for index, name in enumerate(self.hosts)
        }


def total_wrong(rows: list[Row]) -> int | None:
    """Return the number of wrong elements of a run; None if nothing was checked."""
    counts = [measured.wrong for row in rows for measured in row.places.values()]
    checked = [count for count in counts if count is not None]
    return sum(checked) if checked else None


def average_busbw(rows: list[Row], name: str | None = None) -> float:
    """Return the mean busbw over rows and places, of those of one name or of all."""
    values = [
        row.busbw(place)
        for row in rows
        for place in row.places
        if name in (None, row.name)
    ]
    return sum(values) / len(values)


def disturbed(rows: list[Row]) -> int:
    """Return how many rows have a median far above the minimum, in any place.

    Then something else ran on the cores, and the figures say little.
    """
    return sum(
        any(
            m.time_us["median"] > DISTURBED * m.time_us["min"]
            for m in row.places.values()
        )
        for row in rows
    )


def ratios(baseline: Row | None, row: Row) -> dict[str, float] | None:
    """Return how many times as fast as the baseline a row is, each at its headline.

    By the fastest repetition and by the median one.
    """
    if baseline is None:
        return None
    slow, fast = (one.places[one.headline].time_us for one in (baseline, row))
    return {key: slow[key] / fast[key] for key in ("min", "median")}
