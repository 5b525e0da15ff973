"""What a check works on and yields, and how ranks and numbers are written."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from collectives.doctor.facts import ProcessFacts
from collectives.doctor.gpu_trial import Trial

Key = TypeVar("Key", bound=Hashable)
LEVELS = ("ok", "note", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """An answer: how bad, to which question, what was seen, what to do about it."""

    level: str
    check: str
    what: str
    fix: str = ""


@dataclass(frozen=True)
class Link:
    """What was measured between two hosts, by their numbers."""

    one: int
    other: int
    latency_us: float
    """Of a message of 8 bytes, one way."""
    gbs: float
    """GB/s (1e9) of a large message, one way."""


@dataclass(frozen=True)
class Job:
    """The facts of every rank, and what became of a trial all-reduce over them."""

    processes: tuple[ProcessFacts, ...]
    trial: str = ""
    links: tuple[Link, ...] = ()
    """What was measured between hosts."""
    gpus: Trial | None = None
    """What became of a trial with device arrays; None where not all ranks have GPUs."""

    @property
    def vendor(self) -> str:
        """Name of the MPI, "" without one."""
        mpi = self.processes[0].mpi
        return mpi.vendor if mpi else ""

    def hosts(self) -> dict[str, list[int]]:
        """Return the ranks of every host, hosts in order of their lowest rank."""
        indices = grouped(process.host_index for process in self.processes)
        names = [self.processes[ranks[0]].host for ranks in indices.values()]
        return {
            # Containers may all be called the same; then number them.
            name if names.count(name) == 1 else f"{name}#{index}": ranks
            for name, (index, ranks) in zip(names, indices.items(), strict=True)
        }


Check = Callable[[Job], Iterator[Finding]]
"""A pure function that answers one question about a job."""


def grouped(values: Iterable[Key]) -> dict[Key, list[int]]:
    """Return the ranks that have each value, values in order of their lowest rank."""
    ranks: dict[Key, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(rank)
    return ranks


def ranges(numbers: Iterable[int]) -> str:
    """Write 0, 1, 2, 5 as 0-2,5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(
        f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs
    )


def on_ranks(ranks: list[int]) -> str:
    """Write rank 3, ranks 0-2."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}"


def plural(count: int, noun: str) -> str:
    """Write 1 rank, 2 ranks."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
