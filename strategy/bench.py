"""`ringfold bench strategy`: what the programming model adds to a collective.

Each step is made twice, in turns: with `collectives` alone, and as a replica's
`all_reduce` inside `strategy.run`. A step counts as the slowest rank's; printed are the
fastest and the median of all steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import collectives
from collectives.bench.shapes import MODELS, ShapeList, read_shapes
from collectives.bench.usage import Parser, Usage, agree, show
from strategy.multi_worker import MultiWorkerMirroredStrategy
from strategy.replica_context import get_replica_context

WARM_UPS = 5
CALLS = 200  # of a function that does nothing, in one measurement


class Arm(NamedTuple):
    """A step, made directly and through the strategy."""

    name: str
    direct: Callable[[], object]
    through: Callable[[], object]


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status, the same on every rank."""
    comm = collectives.world()
    try:
        given = agree(comm, _parsed(argv))
    except Usage as usage:
        return show(usage, comm.rank)
    strategy = MultiWorkerMirroredStrategy()
    arrays = [np.ones(shape, np.float32) for shape in given.shapes.shapes]
    trivial = _run_alone(strategy)
    rows = [_measured(comm, arm, given.steps) for arm in _arms(comm, strategy, arrays)]
    if comm.rank == 0:
        nbytes = sum(array.nbytes for array in arrays)
        print(
            f"# ringfold bench strategy: {given.shapes.name}, {len(arrays)} arrays, "
            f"{nbytes} bytes, float32 mean, {comm.size} rank(s) on "
            f"{len(comm.topology.hosts)} host(s), {given.steps} steps\n"
            f"# run of a function that does nothing: {trivial * 1e6:.1f} us\n"
            f"# {'':12}{'direct ms':>20}{'strategy ms':>20}{'ratio':>16}\n"
            f"# {'':12}{'min':>10}{'median':>10}{'min':>10}{'median':>10}"
            f"{'min':>8}{'median':>8}"
        )
        for row in rows:
            print(row)
    return 0


class _Given(NamedTuple):
    shapes: ShapeList
    steps: int


def _parsed(argv: Sequence[str]) -> _Given | Usage:
    parser = Parser(prog="ringfold bench strategy", description=__doc__)
    parser.add_argument(
        "--shapes",
        type=read_shapes,
        default=read_shapes("resnet50"),
        help=f"{' '.join(MODELS)}, or a JSON file with a list of shapes",
    )
    parser.add_argument(
        "-n", "--steps", type=int, default=50, help="steps of each kind"
    )
    try:
        given = parser.parse_args(list(argv))
    except Usage as usage:
        return usage
    if given.steps < 1:
        return Usage(f"--steps is {given.steps}; wanted 1 or more")
    return _Given(given.shapes, given.steps)


def _arms(
    comm: collectives.Communicator,
    strategy: MultiWorkerMirroredStrategy,
    arrays: list[Any],
) -> list[Arm]:
    packs = comm.packs(arrays)

    def replica(gradients: Any) -> Any:
        context = get_replica_context()
        assert context is not None
        return context.all_reduce("MEAN", gradients)

    def in_place() -> object:
        views = packs.next()
        return comm.all_reduce_many(views, "mean", out=views)

    return [
        Arm(
            "plain",
            lambda: comm.all_reduce_many(arrays, "mean"),
            lambda: strategy.run(replica, args=(arrays,)),
        ),
        Arm(
            "registered",
            in_place,
            lambda: strategy.run(lambda: replica(packs.next())),
        ),
    ]


def _measured(comm: collectives.Communicator, arm: Arm, steps: int) -> str:
    """Return a row of the table."""
    seconds = np.zeros((steps, 2))
    for step in range(-WARM_UPS, steps):
        for at, call in enumerate((arm.direct, arm.through)):
            comm.barrier()
            begun = perf_counter()
            call()
            if step >= 0:
                seconds[step, at] = perf_counter() - begun
    direct, through = comm.all_reduce(seconds, "max").T * 1e3
    least = direct.min(), through.min()
    middle = statistics.median(direct), statistics.median(through)
    return (
        f"  {arm.name:12}{least[0]:10.3f}{middle[0]:10.3f}"
        f"{least[1]:10.3f}{middle[1]:10.3f}"
        f"{least[1] / least[0]:8.3f}{middle[1] / middle[0]:8.3f}"
    )


def _run_alone(strategy: MultiWorkerMirroredStrategy) -> float:
    """Return the seconds that `run` takes by itself, at best."""
    best = float("inf")
    for _ in range(20):
        begun = perf_counter()
        for _ in range(CALLS):
            strategy.run(_nothing)
        best = min(best, (perf_counter() - begun) / CALLS)
    return best


def _nothing() -> None:
    pass
