"""`ringfold tune --check`: what AUTO costs against the best algorithm of the same run.

Regret is AUTO's time over that of the best fixed algorithm, less one; minima of batches
in turns, so that others who use the machine count for little. The rivals are those
that AUTO may take. Where more than two ranks add floats, those that combine in another
order than that of ranks may not race, since the bits would change from call to call;
what they take is shown beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collectives import eligibility, selection
from collectives.algorithms import AUTO, REDUCING, TABLE
from collectives.communicator import Communicator
from collectives.kernels import kernel_for
from collectives.tune.measuring import DTYPE, OP, Course

SIZES = (*(8 << 2 * power for power in range(12)), 64 << 20)
BUDGET_S = 2.0
HOPELESS = 6.0  # times the lowest price: not measured


@dataclass(frozen=True)
class Row:
    """One size; times are minima in microseconds, by algorithm."""

    nbytes: int
    chosen: str
    auto_us: float
    rivals: dict[str, float]
    """Those that AUTO may take."""
    others: dict[str, float]
    """Those that it may not, because of the bits."""
    prices: dict[str, float]

    @property
    def best(self) -> str:
        """The fastest rival."""
        return min(self.rivals, key=lambda name: self.rivals[name])

    @property
    def regret(self) -> float:
        """How much longer AUTO took than the best rival, as a share."""
        return self.auto_us / self.rivals[self.best] - 1


def rows(comm: Communicator, collective: str, most_bytes: int) -> Iterator[Row]:
    """Measure size by size. Collective."""
    sizes = [size for size in SIZES if size <= most_bytes]
    course = Course(comm, max(sizes))
    for nbytes in sizes:
        yield _row(comm, course, collective, nbytes)


def _row(comm: Communicator, course: Course, collective: str, nbytes: int) -> Row:
    kernel = kernel_for(OP, np.dtype(DTYPE)) if collective in REDUCING else None
    group = comm._group
    able = eligibility.able(collective, nbytes, kernel, group, comm.options)
    prices = selection.prices_us(collective, nbytes, group, able)
    limit = HOPELESS * min(prices.values())
    names = [name for name in able if prices.get(name, 0.0) <= limit]
    course.times_us(collective, nbytes, [AUTO], BUDGET_S / 10)  # it gets to know them
    found = course.times_us(collective, nbytes, [AUTO, *names], BUDGET_S)
    least = {name: float(times.min()) for name, times in found.items()}
    choice = comm.choose(collective, nbytes, DTYPE, OP)
    auto_us = least.pop(AUTO)
    bound = kernel is not None and comm.size > 2 and bool(choice.rivals)
    rivals = {
        name: us
        for name, us in least.items()
        if not bound or TABLE[collective][name].in_order
    }
    others = {name: us for name, us in least.items() if name not in rivals}
    return Row(nbytes, choice.algorithm, auto_us, rivals, others, prices)


HEADER = (
    f"{'bytes':>10}  {'auto us':>9}  {'chosen':<20}  {'best us':>9}  {'best':<20}"
    f"  {'regret':>6}  {'priced':>6}  other bits"
)


def line(row: Row) -> str:
    """Return a row of the table; `priced` is price over time of the best."""
    best, us = row.best, row.rivals[row.best]
    priced = f"{row.prices[best] / us:6.2f}" if best in row.prices else "   N/A"
    others = ", ".join(f"{n} {t:.4g}" for n, t in sorted(row.others.items(), key=_time))
    return (
        f"{row.nbytes:>10}  {row.auto_us:>9.1f}  {row.chosen:<20}  {us:>9.1f}  "
        f"{best:<20}  {row.regret:>6.1%}  {priced}  {others}"
    ).rstrip()


def _time(one: tuple[str, float]) -> float:
    return one[1]


def verdict(everything: list[Row]) -> str:
    """Return the mean and the worst regret, and how far prices were from times."""
    regrets = [max(0.0, row.regret) for row in everything]
    worst = max(everything, key=lambda row: row.regret)
    lines = [
        f"regret: mean {np.mean(regrets):.1%}, worst {worst.regret:.1%} "
        f"at {worst.nbytes} bytes"
    ]
    ratios: dict[str, list[float]] = {}
    for row in everything:
        for name, us in {**row.rivals, **row.others}.items():
            if name in row.prices:
                ratios.setdefault(name, []).append(row.prices[name] / us)
    shown = [
        f"{name} {np.median(its):.2f} ({min(its):.2f} to {max(its):.2f})"
        for name, its in ratios.items()
    ]
    return "\n".join([*lines, f"price over time, median: {'; '.join(shown)}"])


def run(comm: Communicator, collective: str, most_bytes: int) -> None:
    """Print the table, size by size, and what follows from it. Collective."""
    mpi = comm.topology.mpi
    vendor = f"{mpi.vendor} {mpi.version}" if mpi else "no MPI"
    tables = "; ".join(table.name for table in comm._group.tuning.tables)
    _say(comm, f"# {collective}, {vendor}, {comm.topology.shape}; tables: {tables}")
    _say(comm, f"# memory: {comm.probe()}\n{HEADER}")
    everything = []
    for row in rows(comm, collective, most_bytes):
        everything.append(row)
        _say(comm, line(row))
    _say(comm, f"# memory: {comm.probe()}\n{verdict(everything)}")


def _say(comm: Communicator, text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)
