"""`ringfold bench strategy`: what the programming model adds to a collective.

Each step is made in two ways, by turns. First with `collectives` alone, and as a
replica's `all_reduce` inside `strategy.run`. Then, with weights that are updated,
reduced all at once, and pack by pack with `start_all_reduce`. A step counts as the
slowest rank's; printed are the fastest and the median of all steps, and rank 0's
timeline of the last one.
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
from strategy.options import CommunicationOptions
from strategy.replica_context import ReplicaContext, get_replica_context
from strategy.variables import Variable

WARM_UPS = 5
CALLS = 200  # of a function that does nothing, in one measurement


class Arm(NamedTuple):
    """A step, made in one way and in another."""

    name: str
    one: Callable[[], object]
    other: Callable[[], object]


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
    updates = _Updates(strategy, arrays, given.pack_bytes)
    arm = Arm("update", updates.afterwards, updates.as_they_come)
    overlap = _measured(comm, arm, given.steps)
    if comm.rank == 0:
        nbytes = sum(array.nbytes for array in arrays)
        print(
            f"# ringfold bench strategy: {given.shapes.name}, {len(arrays)} arrays, "
            f"{nbytes} bytes, float32 mean, {comm.size} rank(s) on "
            f"{len(comm.topology.hosts)} host(s), {given.steps} steps\n"
            f"# run of a function that does nothing: {trivial * 1e6:.1f} us\n"
            + _header("direct ms", "strategy ms")
        )
        print("\n".join(rows))
        print(f"# packs of {given.pack_bytes} bytes")
        print(_header("at once ms", "by packs ms"))
        print(overlap)
        print("# timeline of a step by packs, ms: bytes, arrived, updated until")
        for nbytes, arrived, updated in updates.timeline:
            print(f"  {nbytes:12}{arrived * 1e3:10.3f}{updated * 1e3:10.3f}")
    return 0


def _header(one: str, other: str) -> str:
    return (
        f"# {'':12}{one:>20}{other:>20}{'ratio':>16}\n"
        f"# {'':12}{'min':>10}{'median':>10}{'min':>10}{'median':>10}"
        f"{'min':>8}{'median':>8}"
    )


class _Given(NamedTuple):
    shapes: ShapeList
    steps: int
    pack_bytes: int


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
    parser.add_argument(
        "--pack-bytes", type=int, default=8 << 20, help="for the updates by packs"
    )
    try:
        given = parser.parse_args(list(argv))
    except Usage as usage:
        return usage
    for name in ("steps", "pack_bytes"):
        if getattr(given, name) < 1:
            return Usage(f"{name} is {getattr(given, name)}; wanted 1 or more")
    return _Given(given.shapes, given.steps, given.pack_bytes)


def _arms(
    comm: collectives.Communicator,
    strategy: MultiWorkerMirroredStrategy,
    arrays: list[Any],
) -> list[Arm]:
    packs = comm.packs(arrays)

    def replica(gradients: Any) -> Any:
        return _context().all_reduce("MEAN", gradients)

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


class _Updates:
    """Weights that every step moves by their reduced gradients."""

    def __init__(
        self,
        strategy: MultiWorkerMirroredStrategy,
        arrays: list[Any],
        pack_bytes: int,
    ) -> None:
        self._strategy = strategy
        self._gradients = arrays
        self._options = CommunicationOptions(bytes_per_pack=pack_bytes)
        with strategy.scope():
            self._weights = [Variable(np.zeros_like(array)) for array in arrays]
        self.timeline: list[tuple[int, float, float]] = []
        """Bytes of each pack, seconds until it was there and until it was used."""

    def afterwards(self) -> None:
        """Reduce everything, then update everything."""
        self._strategy.run(self._step_at_once)

    def as_they_come(self) -> None:
        """Update the weights of each pack while the next ones move."""
        self._strategy.run(self._step_by_packs)

    def _step_at_once(self) -> None:
        context = _context()
        reduced = context.all_reduce("MEAN", self._gradients)
        for weight, gradient in zip(self._weights, reduced, strict=True):
            weight.assign_sub(gradient)

    def _step_by_packs(self) -> None:
        begun = perf_counter()
        reduction = _context().start_all_reduce("MEAN", self._gradients, self._options)
        self.timeline = []
        for pack in reduction.packs:
            arrays = pack.wait()
            arrived = perf_counter() - begun
            for place, gradient in zip(pack.places, arrays, strict=True):
                self._weights[place].assign_sub(gradient)
            nbytes = sum(array.nbytes for array in arrays)
            self.timeline.append((nbytes, arrived, perf_counter() - begun))


def _context() -> ReplicaContext:
    context = get_replica_context()
    assert context is not None
    return context


def _measured(comm: collectives.Communicator, arm: Arm, steps: int) -> str:
    """Return a row of the table."""
    seconds = np.zeros((steps, 2))
    for step in range(-WARM_UPS, steps):
        # Whoever comes first changes, and so does who has which of the two packs.
        turns = list(enumerate((arm.one, arm.other)))
        for at, call in turns[:: 1 if step % 2 else -1]:
            comm.barrier()
            begun = perf_counter()
            call()
            if step >= 0:
                seconds[step, at] = perf_counter() - begun
    one, other = comm.all_reduce(seconds, "max").T * 1e3
    least = one.min(), other.min()
    middle = statistics.median(one), statistics.median(other)
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
