"""The links of a pipeline after its source.

A stage is given `before`, which opens everything before it at some epoch, and gives the
stream after it. What a stage draws at random depends on its seed and the epoch alone,
so all ranks draw the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import Any, Protocol

import numpy as np

from strategy.data.prefetching import prefetched
from strategy.data.sources import INFINITE, UNKNOWN
from strategy.data.streams import Batched, Stream, stack

Opener = Callable[[int], Stream]
AUTOTUNE = -1
"""A number that is left to us."""
SHARD_HINT = -1
"""In `shard(SHARD_HINT, SHARD_HINT)`: the worker's own shard, filled in for it."""


class Stage(Protocol):
    """A link: from the stream before it to the one after it."""

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return the stream of one epoch."""

    def cardinality(self, before: int) -> int:
        """Return the number of elements after it from that before it."""

    def describe(self) -> str:
        """Return what two ranks must have in common."""


class _Described:
    def describe(self) -> str:
        """Return the stage with its arguments; functions cannot be compared."""
        fields = (value for value in vars(self).values() if not callable(value))
        return f"{type(self).__name__.lower()}({', '.join(map(repr, fields))})"


@dataclass(frozen=True)
class Map(_Described):
    """The results of a function; it gets the items of a tuple as its arguments."""

    function: Callable[..., Any]

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return the results."""
        return Stream(called(self.function, element) for element in before(epoch))

    def cardinality(self, before: int) -> int:
        """Return the same number."""
        return before


@dataclass(frozen=True)
class Filter(_Described):
    """The elements for which a function is true."""

    predicate: Callable[..., Any]

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return them."""
        return Stream(
            element for element in before(epoch) if called(self.predicate, element)
        )

    def cardinality(self, before: int) -> int:
        """Return UNKNOWN, or INFINITE as before."""
        return INFINITE if before == INFINITE else UNKNOWN


@dataclass(frozen=True)
class Shuffle(_Described):
    """All elements in a random order, or in one that a small buffer allows."""

    buffer_size: int | None
    seed: int
    each_iteration: bool

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return the elements in this epoch's order."""
        number = epoch if self.each_iteration else 0
        rng = np.random.default_rng([self.seed, number])
        stream = before(epoch)
        if self.buffer_size is None:
            return replace(stream, tokens=_permuted(stream.tokens, rng))
        drawn = _drawn(stream.tokens, self.buffer_size, rng)
        return replace(stream, tokens=drawn)

    def cardinality(self, before: int) -> int:
        """Return the same number."""
        return before


@dataclass(frozen=True)
class Batch(_Described):
    """Elements joined along a new first axis, `size` at a time."""

    size: int
    drop_remainder: bool

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return batches whose rows nobody has looked at yet."""
        rows = before(epoch)
        tokens = self._chunks(rows.tokens)
        return Batched(
            tokens, rows.batch, lambda few: stack(list(map(rows.batch, few)))
        )

    def cardinality(self, before: int) -> int:
        """Return the number of batches."""
        if before < 0:
            return before
        return before // self.size if self.drop_remainder else -(-before // self.size)

    def _chunks(self, tokens: Iterator[Any]) -> Iterator[list[Any]]:
        while chunk := list(islice(tokens, self.size)):
            if len(chunk) < self.size and self.drop_remainder:
                return
            yield chunk


@dataclass(frozen=True)
class Repeat(_Described):
    """All epochs of an iteration, one after the other; None means for ever."""

    times: int | None

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return the elements of the epochs that belong to iteration `epoch`."""
        times = self.times
        start = 0 if times is None else epoch * times
        epochs = count(start + 1) if times is None else range(start + 1, start + times)
        first = before(start)  # how to look at tokens is the same in all epochs

        def tokens() -> Iterator[Any]:
            one = list(islice(first.tokens, 0 if times == 0 else 1))
            if not one:  # and it would look for one for ever
                return
            yield from chain(one, first.tokens)
            for each in epochs:
                yield from before(each).tokens

        return replace(first, tokens=tokens())

    def cardinality(self, before: int) -> int:
        """Return the product."""
        if self.times is None:
            return INFINITE if before else 0
        return before * self.times if before >= 0 else before


@dataclass(frozen=True)
class Slice(_Described):
    """The elements from one place to another."""

    start: int
    stop: int | None

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return them."""
        stream = before(epoch)
        return replace(stream, tokens=islice(stream.tokens, self.start, self.stop))

    def cardinality(self, before: int) -> int:
        """Return their number."""
        if before == INFINITE and self.stop is not None:
            return max(self.stop - self.start, 0)
        if before < 0:
            return before
        return len(range(before)[self.start : self.stop])


@dataclass(frozen=True)
class Shard(_Described):
    """Every `of`-th element, beginning with number `index`."""

    of: int
    index: int

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return them; `ValueError` where SHARD_HINT has not been filled in."""
        if self.of == SHARD_HINT:
            raise ValueError(
                "shard(SHARD_HINT, SHARD_HINT) of a dataset that is not distributed "
                "with AutoShardPolicy.HINT; wanted the number of shards, and which one"
            )
        stream = before(epoch)
        return replace(stream, tokens=islice(stream.tokens, self.index, None, self.of))

    def cardinality(self, before: int) -> int:
        """Return their number."""
        if before < 0 or self.of == SHARD_HINT:
            return before
        return len(range(self.index, before, self.of))


@dataclass(frozen=True)
class Prefetch(_Described):
    """The same elements, some of them made ahead by a thread."""

    ahead: int

    def open(self, before: Opener, epoch: int) -> Stream:
        """Return the elements; the thread starts with the first one."""
        return Stream(prefetched(before(epoch), self.ahead))

    def cardinality(self, before: int) -> int:
        """Return the same number."""
        return before


def called(function: Callable[..., Any], element: Any) -> Any:
    """Call a user's function with an element."""
    return function(*element) if isinstance(element, tuple) else function(element)


def _permuted(tokens: Iterator[Any], rng: np.random.Generator) -> Iterator[Any]:
    """Yield all tokens in a random order."""
    everything = list(tokens)
    yield from map(everything.__getitem__, rng.permutation(len(everything)).tolist())


def _drawn(tokens: Iterator[Any], size: int, rng: np.random.Generator) -> Iterator[Any]:
    """Yield a random one of the `size` tokens that are held; a new one replaces it."""
    held = list(islice(tokens, size))
    places = (
        place for _ in count() for place in rng.integers(size, size=1024).tolist()
    )
    for token, place in zip(tokens, places, strict=False):
        held[place], token = token, held[place]
        yield token
    yield from _permuted(iter(held), rng)
