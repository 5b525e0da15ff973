"""The dataset: a source and what is done with its elements, one after the other."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import DTypeLike

from strategy.data.files import Archives, Lines, Mapped, Path, Tables, as_paths
from strategy.data.options import Options
from strategy.data.sources import (
    INFINITE,
    UNKNOWN,
    Generated,
    Numbers,
    Slices,
    Source,
    given_once,
)
from strategy.data.spec import spec_of
from strategy.data.stages import (
    AUTOTUNE,
    SHARD_HINT,
    Batch,
    Filter,
    Map,
    Prefetch,
    Repeat,
    Shard,
    Shuffle,
    Slice,
    Stage,
)
from strategy.data.streams import Stream


class Dataset:
    """Elements: nests of arrays, made one after the other.

    The methods return changed copies. Iterating gives the elements; an iteration is one
    epoch, or as many as `repeat` says, and the next one draws other random orders.
    """

    def __init__(
        self,
        source: Source,
        stages: tuple[Stage, ...] = (),
        options: Options | None = None,
    ) -> None:
        """Put a pipeline together; users call one of the `from_` methods instead."""
        self.source, self.stages = source, stages
        self._options = Options() if options is None else options
        self._iterations = 0

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> Dataset:
        """Return the rows of the arrays in nested tuples and dicts, in order.

        Raises `ValueError` unless all have the same number of rows.
        """
        return cls(Slices.of(tensors))

    @classmethod
    def range(cls, *args: int) -> Dataset:
        """Return int64 numbers; the arguments are those of Python's `range`."""
        return cls(Numbers(range(*args)))

    @classmethod
    def from_generator(cls, generator: Callable[[], Iterable[Any]]) -> Dataset:
        """Return what a function gives, which is called for each epoch.

        On several workers it must give the same elements on all of them.
        """
        return cls(Generated(generator))

    @classmethod
    def from_iterable(cls, iterable: Iterable[Any]) -> Dataset:
        """Return the elements of a Python iterable, such as a list of batches.

        An iterator has a single epoch: beginning another one is a `ValueError`.
        """
        if isinstance(iterable, Iterator):
            return cls(Generated(given_once(iterable)))
        try:
            length = len(iterable)  # type: ignore[arg-type]
        except TypeError:  # also where it has a __len__ that does not know
            length = UNKNOWN
        return cls(Generated(lambda: iterable, length))

    @classmethod
    def from_text(cls, paths: Path | Sequence[Path]) -> Dataset:
        """Return the lines of text files as str."""
        return cls(Lines(as_paths(paths)))

    @classmethod
    def from_csv(
        cls,
        paths: Path | Sequence[Path],
        columns: Mapping[str, DTypeLike] | None = None,
    ) -> Dataset:
        """Return the rows of CSV files with a header line as dicts of numbers.

        `columns` gives the dtype of each column that is wanted, in place of all of
        them in float64. Reading raises `ValueError` naming file, line and column.
        """
        return cls(Tables(as_paths(paths), columns))

    @classmethod
    def from_npy(cls, paths: Path | Sequence[Path]) -> Dataset:
        """Return the rows of .npy files; they are mapped, so they may be large."""
        return cls(Mapped(as_paths(paths)))

    @classmethod
    def from_npz(cls, paths: Path | Sequence[Path]) -> Dataset:
        """Return the rows of .npz files as dicts, a file in memory at a time."""
        return cls(Archives(as_paths(paths)))

    def map(self, function: Callable[..., Any]) -> Dataset:
        """Give what `function` makes of each element; a tuple becomes its arguments."""
        return self._then(Map(function))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Give the elements for which `predicate` is true."""
        return self._then(Filter(predicate))

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int = 0,
        reshuffle_each_iteration: bool = True,
    ) -> Dataset:
        """Give the elements in an order that `seed` and the epoch fix.

        It is the same on all ranks, so that each can take its part of every batch.
        With a `buffer_size` one of so many elements is drawn at a time, which holds no
        more in memory and mixes less; without one the order is any of all.
        """
        if buffer_size is not None:
            _at_least("buffer_size", buffer_size, 1)
        return self._then(Shuffle(buffer_size, seed, reshuffle_each_iteration))

    def batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Join elements along a new first axis; the last batch may be shorter.

        In a dataset that is distributed the size is that of all replicas together.
        """
        return self._then(Batch(_at_least("batch_size", batch_size, 1), drop_remainder))

    def repeat(self, count: int | None = None) -> Dataset:
        """Give all elements `count` times in one iteration; None means for ever."""
        return self._then(Repeat(count if count != INFINITE else None))

    def take(self, count: int) -> Dataset:
        """Give the first `count` elements."""
        return self._then(Slice(0, _at_least("count", count, 0)))

    def skip(self, count: int) -> Dataset:
        """Give all but the first `count` elements."""
        return self._then(Slice(_at_least("count", count, 0), None))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Give every `num_shards`-th element, from number `index` on.

        `shard(SHARD_HINT, SHARD_HINT)` stands for the worker's own shard.
        """
        hint = num_shards == index == SHARD_HINT
        if not hint and not 0 <= index < num_shards:
            raise ValueError(
                f"shard {index} of {num_shards}; wanted an index from 0 to "
                f"{num_shards - 1}"
            )
        return self._then(Shard(num_shards, index))

    def prefetch(self, buffer_size: int = AUTOTUNE) -> Dataset:
        """Give the same elements, up to `buffer_size` of them made ahead by a thread.

        AUTOTUNE means 2. The functions before it run in that thread; they must not
        call collectives.
        """
        ahead = 2 if buffer_size == AUTOTUNE else buffer_size
        return self._then(Prefetch(_at_least("buffer_size", ahead, 1)))

    def with_options(self, options: Options) -> Dataset:
        """Give the same elements; say how workers share them."""
        if not isinstance(options, Options):
            raise TypeError(f"options is {options!r}; wanted an Options")
        return Dataset(self.source, self.stages, copy.deepcopy(options))

    def options(self) -> Options:
        """Return the options."""
        return self._options

    def cardinality(self) -> int:
        """Return the number of elements in an iteration, INFINITE or UNKNOWN."""
        number = self.source.cardinality()
        for stage in self.stages:
            number = stage.cardinality(number)
        return number

    @property
    def element_spec(self) -> Any:
        """The shapes and dtypes of the elements; this makes the first one."""
        return spec_of(self)

    def stream(self, epoch: int) -> Stream:
        """Open iteration number `epoch`, without looking at an element yet."""
        return self._open(len(self.stages), epoch)

    def iteration(self, number: int) -> Iterator[Any]:
        """Return iteration `number`: the same elements whenever asked."""
        return iter(self.stream(number))

    def __iter__(self) -> Iterator[Any]:
        self._iterations += 1
        return self.iteration(self._iterations - 1)

    def __len__(self) -> int:
        """Return the number of elements; `TypeError` where it is not known."""
        number = self.cardinality()
        if number < 0:
            known = {INFINITE: "repeats for ever", UNKNOWN: "has to be read to its end"}
            raise TypeError(f"no length: the dataset {known[number]}")
        return number

    def describe(self) -> str:
        """Return the pipeline in words: what ranks must have in common to share it."""
        stages = [stage.describe() for stage in self.stages]
        return " ".join([self.source.describe(), *stages])

    def __repr__(self) -> str:
        return f"<Dataset {self.describe()}>"

    def _then(self, stage: Stage) -> Dataset:
        return Dataset(self.source, (*self.stages, stage), self._options)

    def _open(self, stages: int, epoch: int) -> Stream:
        if not stages:
            return self.source.open(epoch)
        return self.stages[stages - 1].open(partial(self._open, stages - 1), epoch)


def _at_least(name: str, value: int, least: int) -> int:
    if value < least:
        raise ValueError(f"{name} is {value}; wanted {least} or more")
    return value
