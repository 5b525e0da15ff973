"""Ranks with different numbers of steps: who is done answers for the others' sake.

Inside `with comm.join():` every call begins with the ranks telling each other their
descriptors. A rank at the end of the block *has joined*: it reads what the
others are about to do and takes part with something that changes nothing, such as zeros
for a sum or a part of length 0 for a gather, until all ranks have joined.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collectives.agreement import CALL_NUMBER
from collectives.algorithms.small import all_gather_bytes
from collectives.calls import (
    Call,
    gathering,
    groups,
    many,
    objects,
    reducing,
    scattering,
    with_window,
)
from collectives.contents import compare
from collectives.descriptor import Descriptor, difference
from collectives.errors import InvalidArgumentError, MismatchError, UnsupportedError
from collectives.group import Group
from collectives.kernels import Array, identity, kernel_for
from collectives.options import Options
from collectives.plans import Planner
from collectives.verdicts import describe_mismatch

DIVISORS = ("active", "world")
JOINED = Descriptor("joined")


class Join:
    """The block `with comm.join():`; see `Communicator.join`."""

    def __init__(
        self, submit: Callable[..., Any], group: Group, options: Options, divisor: str
    ) -> None:
        """Submit calls through `submit` to `group`."""
        self._submit = submit
        self._group = group
        self._options = options
        self._divisor = divisor

    def __enter__(self) -> None:
        """Begin, on all ranks."""
        self._submit(join, self._options, self._divisor)
        self._group.joining = self._divisor

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Answer the others until all have joined, unless an error is on its way."""
        try:
            while kind is None and self._submit(joined):
                pass
        finally:
            self._group.joining = ""
            self._group.divisor = self._group.size


def join(planner: Planner, options: Options, divisor: str) -> Call:
    """Begin the block."""
    if divisor not in DIVISORS:
        raise InvalidArgumentError(f"divisor is {divisor!r}; wanted one of {DIVISORS}")
    if options.check == "off":
        raise UnsupportedError(
            'join with check="off": joined ranks read what is checked'
        )
    if planner.group.joining:
        raise UnsupportedError("a join inside a join")
    return Call(Descriptor("join", op=divisor), lambda: None)


def joined(planner: Planner) -> Call:
    """Take part in the next call of the others; tell whether there was one."""

    def run() -> bool:
        theirs = planner.group.to_answer
        if theirs is None:
            return False
        if theirs.invalid:  # the same on all of them, who raise it as well
            raise InvalidArgumentError(f"after this rank had joined: {theirs}")
        prepare = PREPARE[theirs.collective]
        answers = ANSWERS[theirs.collective](theirs)
        call = prepare(planner, *answers)
        if call.windowed:
            call = with_window(planner, prepare, answers)
        result = call.run()
        if planner.options.check == "full":
            timeout_s = planner.options.timeout_s
            compare(planner.group, theirs.collective, result, timeout_s)
        return True

    return Call(JOINED, run)


def agree_joining(group: Group, mine: Descriptor, timeout_s: float) -> None:
    """Agree on a call inside a join; afterwards `group.to_answer` is what is called.

    Raises:
        MismatchError: the ranks that have not joined make different calls.
        UnsupportedError: a joined rank cannot take part in this call.
    """
    if group.board is not None:
        number = CALL_NUMBER[mine.collective]
        group.board.post(group.sequence, number, mine.word(group.sequence))
    texts = all_gather_bytes(group, pickle.dumps(mine), timeout_s)
    everyone = [pickle.loads(text) for text in texts]
    gone = [rank for rank, theirs in enumerate(everyone) if theirs == JOINED]
    active = [theirs for theirs in everyone if theirs != JOINED]
    group.divisor = len(active) if group.joining == "active" else group.size
    group.to_answer = active[0] if active else None
    if difference(active) is not None:
        raise MismatchError(describe_mismatch(group.sequence, everyone))
    if active and not active[0].invalid:
        _check(active[0], gone)


def _check(call: Descriptor, gone: Sequence[int]) -> None:
    """Raise the same error on all ranks if a joined one could not take part."""
    if call.collective not in ANSWERS:
        raise UnsupportedError(f"{call} inside a join")
    if not gone:
        return
    if call.root in gone:
        raise UnsupportedError(
            f"{call}: its root, rank {call.root}, has no more input and has joined"
        )
    ANSWERS[call.collective](call)


def _nothing(op: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return an array of the identity of `op`."""
    kind = np.dtype(dtype)
    if op not in ("sum", "mean", "min", "max", "prod", "and", "or", "xor"):
        raise UnsupportedError(f"op {op} has no identity that a joined rank could give")
    value = np.asarray(identity(kernel_for(op, kind))).astype(kind)
    return np.full(shape, value, kind)


def _like(d: Descriptor) -> Array:
    return _nothing(d.op, d.dtype, d.shape)


def _empty_part(d: Descriptor) -> Array:
    """Return a part of length 0 along the axis whose length may differ."""
    shape = [0 if axis == d.axis else n for axis, n in enumerate(d.shape)]
    return np.empty(shape, np.dtype(d.dtype))


def _lengths(d: Descriptor) -> list[int]:
    """Return the rows of each rank's block from bounds in elements."""
    rows = int(np.prod(d.shape, dtype=np.int64)) // max(1, d.shape[d.axis])
    return [
        (high - low) // max(1, rows)
        for low, high in zip(d.splits, d.splits[1:], strict=False)
    ]


def _many(d: Descriptor) -> list[Array]:
    return [_nothing(d.op or "sum", dtype, shape) for dtype, shape in d.shape]


PREPARE: dict[str, Callable[..., Call]] = {
    "all_reduce": reducing.all_reduce,
    "reduce": reducing.reduce,
    "reduce_scatter": reducing.reduce_scatter,
    "scan": reducing.scan,
    "exclusive_scan": reducing.scan,
    "broadcast": gathering.broadcast,
    "all_gather": gathering.all_gather,
    "gather": gathering.gather,
    "scatter": scattering.scatter,
    "all_to_all": scattering.all_to_all,
    "all_reduce_many": many.all_reduce_many,
    "broadcast_many": many.broadcast_many,
    "barrier": groups.barrier,
    "broadcast_object": objects.broadcast_object,
    "all_gather_object": objects.all_gather_object,
    "gather_object": objects.gather_object,
}

# What a joined rank passes to the function of that name.
ANSWERS: dict[str, Callable[[Descriptor], tuple[Any, ...]]] = {
    "all_reduce": lambda d: (_like(d), d.op, None, d.algorithm),
    "reduce": lambda d: (_like(d), d.op, d.root, None, d.algorithm),
    "reduce_scatter": lambda d: (
        _like(d), d.op, d.axis, _lengths(d), None, d.algorithm,
    ),
    "scan": lambda d: (_like(d), d.op, False, None, d.algorithm),
    "exclusive_scan": lambda d: (_like(d), d.op, True, None, d.algorithm),
    "broadcast": lambda d: (
        np.empty(d.shape, np.dtype(d.dtype)), d.root, None, d.algorithm,
    ),
    "all_gather": lambda d: (_empty_part(d), d.axis, None, d.algorithm),
    "gather": lambda d: (_empty_part(d), d.root, d.axis, None, d.algorithm),
    "scatter": lambda d: (None, d.root, 0, None, None, d.algorithm),
    "all_to_all": lambda d: (_empty_part(d), d.axis, None, None, d.algorithm),
    "all_reduce_many": lambda d: (_many(d), d.op, None, d.packs, d.algorithm),
    "broadcast_many": lambda d: (_many(d), d.root, None, d.packs, d.algorithm),
    "barrier": lambda d: (),
    "broadcast_object": lambda d: (None, d.root),
    "all_gather_object": lambda d: (None,),
    "gather_object": lambda d: (None, d.root),
}  # fmt: skip
