"""`ringfold tune --predict`: what ranks that one does not have would take."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from collectives.bench.cases import CASES
from collectives.bench.usage import Usage
from collectives.costs import Costs, alpha_beta, line
from collectives.moves import FORMULAS, SCHEDULES, Place, moves
from collectives.tables import Tuning, read, shipped
from collectives.topology import Topology

ONE_HOST = "shared", "direct"


class Prediction(NamedTuple):
    """What one call by one algorithm is thought to take."""

    algorithm: str
    nbytes: int
    us: float
    busbw_gbs: float
    """GB/s (1e9), with the factor of nccl-tests for the collective."""


def predict(
    collective: str, place: Place, sizes: Sequence[int], costs: Costs
) -> Iterator[list[Prediction]]:
    """Yield, for each size, every algorithm whose moves have a price, fastest first."""
    factor = CASES[collective].factor(place.ranks)
    names = [*FORMULAS[collective], *SCHEDULES[collective]]
    for nbytes in sizes:
        found = []
        for name in names:
            made = moves(collective, name, place, nbytes)
            fits = place.hosts == 1 or name not in ONE_HOST
            if made is not None and fits and costs.knows(made):
                us = costs.price_us(made)
                found.append(Prediction(name, nbytes, us, factor * nbytes / us / 1e3))
        yield sorted(found, key=lambda one: one.us)


def table(predictions: Sequence[Sequence[Prediction]]) -> str:
    """Return a line for each size and algorithm, the fastest first."""
    lines = [f"{'bytes':>10}  {'algorithm':<20}{'us':>12}{'busbw GB/s':>12}"]
    for row in predictions:
        lines.append("")
        for name, nbytes, us, busbw in row:
            lines.append(f"{nbytes:>10}  {name:<20}{us:>12.1f}{busbw:>12.3f}")
    return "\n".join(lines)


def plot(path: str, title: str, predictions: Sequence[Sequence[Prediction]]) -> None:
    """Draw bus bandwidth over size into a file; needs matplotlib.

    Raises:
        ImportError: it is not installed.
        OSError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name in sorted({one.algorithm for row in predictions for one in row}):
        its = [one for row in predictions for one in row if one.algorithm == name]
        axes.plot([i.nbytes for i in its], [i.busbw_gbs for i in its], label=name)
    axes.set(xscale="log", yscale="log", title=title)
    axes.set(xlabel="bytes", ylabel="bus bandwidth, GB/s (predicted)")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path)


def run(known: Namespace) -> None:
    """Print what the arguments ask for, and draw it.

    Raises:
        Usage: a number, or a file, will not do.
    """
    if known.hosts < 1 or known.ranks_per_host < 1:
        raise Usage("--hosts and --ranks-per-host: wanted 1 or more")
    costs, per_host = _costs(known), known.ranks_per_host
    place = Place(known.hosts * per_host, per_host)
    sizes = [8 << 2 * power for power in range(13) if 8 << 2 * power <= known.most]
    start = time.perf_counter()
    predictions = list(predict(known.collective, place, sizes, costs))
    seconds = time.perf_counter() - start
    title = f"{known.collective} on {known.hosts} hosts x {known.ranks_per_host} ranks"
    print(f"{title}, predicted in {seconds:.1f} s\n{table(predictions)}", flush=True)
    if known.plot:
        try:
            plot(known.plot, title, predictions)
        except (ImportError, OSError) as error:
            raise Usage(f"cannot draw --plot {known.plot}: {error}") from error


def _costs(known: Namespace) -> Costs:
    """Return the curves of a table, with the network that the arguments describe."""
    try:
        text = Path(known.table).read_text() if known.table else shipped(known.mpi)
        tables = read(text, known.table or "a shipped table") if text else ()
    except (OSError, ValueError) as error:
        raise Usage(f"--table {known.table}: {error}") from error
    size = known.hosts * known.ranks_per_host
    host_of = tuple(rank // known.ranks_per_host for rank in range(size))
    names = tuple(f"host{number}" for number in range(known.hosts))
    here = Topology(0, names, host_of, cores=known.ranks_per_host)
    costs = Tuning(tables, here).costs
    if known.latency_us is None and known.link_gbs is None:
        return costs
    alpha, rate = alpha_beta(costs.curves["far_copy"])
    alpha = alpha if known.latency_us is None else known.latency_us
    rate = rate if known.link_gbs is None else known.link_gbs
    network = line(alpha, rate)
    return Costs({"far_copy": network, "far_combine": network}).over(costs)
