"""The strategy: where variables are made, replicas are run and values combined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from strategy import contexts, local_reduce, nest
from strategy.cluster_resolver import ClusterResolver
from strategy.extended import StrategyExtended
from strategy.input_context import InputContext, InputOptions
from strategy.options import RunOptions
from strategy.placing import cast, in_use, moved, on, place_of
from strategy.reduce_op import ReduceOp, mean_dtype
from strategy.replica_context import ReplicaContext
from strategy.values import (
    Array,
    DistributedValues,
    PerReplica,
    ValueContext,
    plain,
)

Axis = int | tuple[int, ...]


class Strategy:
    """Runs a function on several replicas and combines what they return.

    Except where said, its methods need the cross-replica context: inside `scope()`, or
    where no scope is open. Elsewhere they raise `RuntimeError`.
    """

    def __init__(self, extended: StrategyExtended) -> None:
        self._extended = extended

    @property
    def extended(self) -> StrategyExtended:
        """The machinery, and the methods that library code needs."""
        return self._extended

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas whose gradients are combined."""
        return self._extended.num_replicas_in_sync

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """Which task of which cluster this process is; None without a cluster."""
        return self._extended.cluster_resolver

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Make this the strategy in use, so that variables made inside are its own."""
        contexts.require_cross_replica(self)
        with contexts.entered(contexts.Mode(self)):
            yield self

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: RunOptions | None = None,
    ) -> Any:
        """Call `fn` as each replica and return what the local ones return.

        PerReplica and Mirrored arguments reach each replica as its own component,
        variables and everything else as they are. What is the same object on all
        local replicas comes back bare, everything else as PerReplica; with one local
        replica everything comes back bare.

        Several local replicas are threads that take turns: each runs up to its next
        `merge_call`, `all_reduce` or other call in which replicas meet. An error of one
        of them stops the others and is raised unchanged. `options` may say that they
        run at the same time.
        """
        if not isinstance(args, (list, tuple)):
            raise ValueError(f"args is {args!r}; wanted a list or a tuple")
        with self.scope():
            return self._extended.call_for_each_replica(
                fn, args, {} if kwargs is None else kwargs, options
            )

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: Axis | None) -> Any:
        """Return the SUM or MEAN of `value` over all replicas.

        With `axis=None` the components must have one shape and MEAN divides by the
        number of replicas; `value` may be a nest. With an axis each component is first
        reduced along it; their lengths may differ, and MEAN divides by the number of
        elements there are in total.
        """

        def check() -> ReduceOp:
            if not isinstance(axis, (int, tuple, type(None))):
                raise TypeError(
                    f"axis is {axis!r}; wanted None, an int or a tuple of ints"
                )
            return ReduceOp.parse(reduce_op)

        with self.scope():
            op = self._extended.agreed(check)
            if axis is not None:
                return self._reduce_along(op, value, axis)
            return nest.unflatten(value, self._reduce(op, nest.flatten(value)))

    def gather(self, value: Any, axis: int) -> Any:
        """Return the components on all replicas joined along `axis`."""
        with self.scope():
            return nest.map_structure(
                lambda leaf: self._extended.gather_to(leaf, axis), value
            )

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Return the components held by this process, in a tuple."""
        if not any(isinstance(leaf, DistributedValues) for leaf in nest.flatten(value)):
            return (value,)
        return tuple(
            nest.map_structure(lambda leaf, at=index: _component(leaf, at), value)
            for index in range(len(self._extended.replica_ids))
        )

    def experimental_distribute_dataset(
        self, dataset: Iterable[Any], options: InputOptions | None = None
    ) -> Iterable[Any]:
        """Return this process's share of `dataset`, a re-iterable of global batches.

        Every process must give the same batches in the same order. A batch of b rows
        is cut into pieces, one for each of the n replicas; the last ones may be short
        or empty, so that all replicas make the same number of steps. A `data.Dataset`
        says in its options how processes share it: see `data.AutoShardPolicy`.
        """
        with self.scope():
            return self._extended.distribute_dataset(dataset, options)

    def distribute_datasets_from_function(
        self,
        dataset_fn: Callable[[InputContext], Iterable[Any]],
        options: InputOptions | None = None,
    ) -> Iterable[Any]:
        """Return the batches that `dataset_fn` makes for this process, uncut.

        Processes with fewer batches get empty ones until all have come to their end.
        """
        with self.scope():
            return self._extended.distribute_from_function(dataset_fn, options)

    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], Any]
    ) -> Any:
        """Return what `value_fn` gives for each local replica, as a PerReplica."""
        with self.scope():
            return self._extended.distribute_values(value_fn)

    def _reduce(self, op: ReduceOp, leaves: list[Any]) -> list[Any]:
        """Return each value's combination, bare."""
        pairs = [(leaf, _home(leaf)) for leaf in leaves]
        reduced = self._extended.reduce_pairs(op, pairs, None)
        return [
            plain(leaf.values[0]) if isinstance(leaf, DistributedValues) else leaf
            for leaf in reduced
        ]

    def _reduce_along(self, op: ReduceOp, value: Any, axis: Axis) -> Any:
        """Reduce each replica's component along `axis`, then all of them."""
        local = range(len(self._extended.replica_ids))
        if isinstance(value, nest.CONTAINERS) and any(
            isinstance(leaf, DistributedValues) for leaf in nest.flatten(value)
        ):
            raise TypeError(
                f"a nest of several values with axis {axis}; wanted one value: reduce "
                "each by itself, or with axis=None"
            )
        try:
            arrays = [plain(_component(value, index)) for index in local]
            local_reduce.check_dtypes(arrays)
            dtype = arrays[0].dtype
            if op is ReduceOp.MEAN:
                dtype = mean_dtype(dtype)
            wide = dtype if op is ReduceOp.SUM else local_reduce.sum_dtype(dtype)
            sums = [_sum(array, axis, wide) for array in arrays]
            counts = [
                moved(np.asarray(_count(array, axis)), place_of(array))
                for array in arrays
            ]
        except Exception as error:
            self._extended.refuse(error)
        if op is ReduceOp.SUM:
            return self._reduce(op, [PerReplica(sums)])[0]
        total, count = self._reduce(
            ReduceOp.SUM, [PerReplica(sums), PerReplica(counts)]
        )
        # Without an element on any replica: nan.
        with on(place_of(total)), np.errstate(invalid="ignore"):
            return (total / count).astype(dtype, copy=False)

    def __repr__(self) -> str:
        name = type(self).__name__.lstrip("_")
        return f"<{name} of {self.num_replicas_in_sync} replica(s)>"

    def __copy__(self) -> NoReturn:
        raise RuntimeError("a strategy cannot be copied: its replicas exist once")

    def __deepcopy__(self, memo: dict[int, Any]) -> Strategy:
        """Return another strategy over the same replicas and ranks."""
        made = object.__new__(type(self))
        made.__dict__.update(vars(self))
        made._extended = self._extended.copied_for(made)
        return made


class _DefaultExtended(StrategyExtended):
    """The machinery outside all scopes, where everything is plain."""

    def variable_created_in_scope(self, v: Any) -> bool:
        """Return whether `v` was made by no other strategy."""
        return getattr(v, "distribute_strategy", self._strategy) is self._strategy


class _DefaultStrategy(Strategy):
    """The strategy outside all scopes: one replica, the caller."""

    def __init__(self) -> None:
        super().__init__(_DefaultExtended(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        raise RuntimeError("the default strategy exists once")

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Change nothing; `RuntimeError` inside the scope of another strategy."""
        if contexts.has_strategy():
            raise RuntimeError("must not nest the default strategy in a scope")
        yield self


_default = _DefaultStrategy()
contexts.set_default(contexts.Mode(_default, ReplicaContext(_default)))


def _home(leaf: Any) -> Any:
    """Return where the result shall be: with the first component."""
    if isinstance(leaf, DistributedValues) and in_use():
        leaf = plain(leaf.values[0])
    return "CPU:0" if place_of(leaf) is None else leaf


def _component(leaf: Any, index: int) -> Any:
    """Return one local component; a value that has a single one has it for all."""
    if not isinstance(leaf, DistributedValues):
        return leaf
    return leaf.values[index if index < len(leaf.values) else 0]


def _sum(array: Array, axis: Axis, dtype: np.dtype[Any]) -> Any:
    """Sum along `axis`, in `dtype`; 16-bit floats add in float32."""
    axes = _axes(axis, array.ndim)  # np.sum takes axis 0 of a number
    with on(place_of(array)):
        total = np.sum(array, axes, dtype=local_reduce.sum_dtype(dtype))
        return cast(total, dtype)


def _count(array: Array, axis: Axis) -> int:
    """Return how many elements are added to make one of the sums."""
    axes = _axes(axis, array.ndim)
    return int(np.prod([array.shape[axis] for axis in axes], dtype=np.int64))


def _axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Return the axes as a tuple: `ValueError` for one that an array does not have."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    for one in axes:
        if not -ndim <= one < ndim:
            raise ValueError(
                f"axis {one} is out of bounds for an array of {ndim} dimension(s)"
            )
    return axes
