"""What a benchmark has to know about one collective: its sizes, arrays and results.

A call reads an array `send` and leaves its result in an array `receive`. In place, both
are views of one buffer: the same view, or one of them a part of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from collectives.bench.shapes import Shape
from collectives.communicator import Communicator

__all__ = [
    "BASELINE",
    "IN_PLACE",
    "ORDINARY",
    "OUT_OF_PLACE",
    "Block",
    "Case",
    "Form",
    "Setup",
    "Size",
    "Staged",
    "StagedRunner",
    "staged",
]

Array = NDArray[Any]
Call = Callable[[], object]

# The algorithm name of the raw mpi4py call: what every other one is compared with.
BASELINE = "mpi"

OUT_OF_PLACE, IN_PLACE = "out_of_place", "in_place"

# nccl-tests rounds the part of each rank down to a multiple of this many bytes.
PART_BYTES = 16


@dataclass(frozen=True)
class Size:
    """The size column, in bytes, and the count column of a row."""

    nbytes: int
    count: int


class Block(NamedTuple):
    """One piece of a result: what the ranks `sources` sent, combined.

    Where they send a part to every rank, it is their part number `part`. No source at
    all stands for the identity of the op.
    """

    sources: tuple[int, ...]
    part: int = 0


Blocks = Callable[[int, int, int], list[Block]]
"""`(ranks, rank, root)` to the result of that rank, block after block."""


@dataclass(frozen=True)
class Form:
    """Where the arrays of a call lie, and what a call leaves.

    `registered`: in memory shared by the host. `shared`: the result is one copy a host,
    and `touched`: every rank reads all of it inside the time.
    """

    registered: bool = False
    shared: bool = False
    touched: bool = False

    def __str__(self) -> str:
        """Return what is unlike ordinary arrays: "registered SHARED", for instance."""
        names = zip(
            ("registered", "SHARED", "touched"), vars(self).values(), strict=True
        )
        return " ".join(name for name, value in names if value)


ORDINARY = Form()


@dataclass(frozen=True)
class Setup:
    """Everything but the arrays that a call is made of."""

    comm: Communicator
    op: str
    root: int
    algorithm: str
    place: str
    shapes: tuple[Shape, ...] = ()
    form: Form = ORDINARY


Runner = Callable[[Setup, Array, Array], Call]


def _nothing() -> None:
    pass


class Staged(NamedTuple):
    """A call, and what its owner does outside the time.

    `before` takes what was written to `send`, `after` leaves the result in `receive`,
    where a call works on other memory than those two; `afresh`: `before` comes before
    every call.
    """

    call: Call
    before: Call = _nothing
    after: Call = _nothing
    afresh: bool = False


StagedRunner = Callable[[Setup, Array, Array], Staged]


def staged(runner: Runner) -> StagedRunner:
    """Return what binds a call that needs nothing before and after."""
    return lambda setup, send, receive: Staged(runner(setup, send, receive))


@dataclass(frozen=True)
class Case:
    """One collective.

    `factor(ranks)` is busbw over algbw. `ours` binds our call and `raw` the MPI's own,
    per place; a place that is missing is printed as N/A. `blocks(ranks, rank, root)`
    tells the result of a rank, block after block; none where it has no result.

    `by_parts`: the size is that of the whole array, and the count that of one rank's
    part of it. `part` names the array, `send` or `receive`, that is only such a part;
    in place it lies where the rank's part of the other one is, or `at_start` of it.

    `overwrites`: in place, nothing is left of any rank's input.

    A call is `messages` messages one after the other; times are those of one.
    `registered` binds our call to registered arrays, and `shared` that which leaves one
    result a host; none where the collective has none.

    `baseline` is the name of what `raw` binds. `algorithms` is where to look for them
    in `collectives.ALGORITHMS`; `by_hand` has more ways to use the MPI's own, by name.
    On GPUs it is NCCL that is raw. `unlike` has those that leave no result.
    """

    name: str
    factor: Callable[[int], float]
    ours: dict[str, Runner]
    raw: dict[str, Runner]
    blocks: Blocks
    reduces: bool = False
    rooted: bool = False
    by_parts: bool = False
    part: str = ""
    at_start: bool = False
    overwrites: bool = False
    sized: bool = True
    listed: bool = False
    messages: int = 1
    fewest_ranks: int = 1
    baseline: str = BASELINE
    algorithms: str = ""
    by_hand: dict[str, dict[str, Runner]] = field(default_factory=dict)
    unlike: frozenset[str] = frozenset()
    registered: dict[str, StagedRunner] = field(default_factory=dict)
    shared: dict[str, StagedRunner] = field(default_factory=dict)

    def foreign(self, algorithm: str) -> bool:
        """Tell whether an algorithm has nothing of ours around it."""
        return algorithm == self.baseline or algorithm in self.by_hand

    def runners(self, algorithm: str) -> dict[str, Runner]:
        """Return what binds an algorithm, per place."""
        if algorithm == self.baseline:
            return self.raw
        return self.by_hand.get(algorithm, self.ours)

    def staged(self, algorithm: str, form: Form) -> dict[str, StagedRunner]:
        """Return what binds an algorithm to arrays of a form, per place."""
        if form.registered:
            return self.shared if form.shared else self.registered
        plain = self.runners(algorithm)
        return {place: staged(runner) for place, runner in plain.items()}

    def size(self, asked: int, itemsize: int, ranks: int) -> Size:
        """Return the size that is measured when `asked` bytes were asked for."""
        if not self.sized:
            return Size(0, 0)
        if not self.by_parts:
            count = asked // itemsize
            return Size(count * itemsize, count)
        part = asked // ranks // PART_BYTES * PART_BYTES
        return Size(part * ranks, part // itemsize)

    def views(
        self, buffers: tuple[Array, Array], size: Size, place: str, rank: int
    ) -> tuple[Array, Array]:
        """Return `send` and `receive` of this rank, views of two buffers of one dtype.

        Each buffer must hold `size.nbytes`. In place, `send` and `receive` are the same
        object, as in `all_reduce(x, out=x)`, except where one of them is a part.
        """
        first, second = (buffer[: size.nbytes // buffer.itemsize] for buffer in buffers)
        send, receive = (first, first if place == IN_PLACE else second)
        start = rank * size.count if place == IN_PLACE and not self.at_start else 0
        if self.part == "send":
            send = send[start : start + size.count]
        elif self.part == "receive":
            receive = receive[start : start + size.count]
        return send, receive
