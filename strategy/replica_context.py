"""What a function sees when a strategy runs it as one of its replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from strategy import contexts, nest
from strategy.local_reduce import is_dense
from strategy.options import CommunicationOptions
from strategy.placing import copied, place_of
from strategy.reduce_op import ReduceOp
from strategy.reduction import Reduction
from strategy.refusal import Refusal, or_refusal
from strategy.replicas import Combine, Meeting
from strategy.values import ArrayLike, PerReplica, regroup, select

if TYPE_CHECKING:
    from strategy.base import Strategy


class ReplicaContext:
    """One replica, and its ways to meet the others.

    It is a context manager: inside, it is the current replica. Where a process holds
    several replicas, each is a thread, and they meet in a `Meeting`.
    """

    def __init__(
        self,
        strategy: Strategy,
        replica_id_in_sync_group: int | None = 0,
        local_index: int = 0,
        meeting: Meeting | None = None,
    ) -> None:
        replica_id = replica_id_in_sync_group
        if replica_id is not None and not isinstance(replica_id, (int, np.integer)):
            raise ValueError(f"replica id is {replica_id!r}; wanted an integer or None")
        self._strategy = strategy
        self._replica_id = replica_id
        self._local_index = local_index
        self._meeting = meeting
        self._mode = contexts.Mode(strategy, self)

    @property
    def strategy(self) -> Strategy:
        """The strategy that runs this replica."""
        return self._strategy

    @property
    def replica_id_in_sync_group(self) -> int | None:
        """Which of all replicas it is, counted from 0; an int32 inside run()."""
        return self._replica_id

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas on all ranks together."""
        return self._strategy.num_replicas_in_sync

    @property
    def local_index(self) -> int:
        """Which of the replicas in this process it is."""
        return self._local_index

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of this replica."""
        return (self._strategy.extended.worker_devices[self._local_index],)

    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `merge_fn(strategy, *args, **kwargs)` once for all local replicas.

        It runs in cross-replica context; each argument holds the replicas' values
        together, and each replica gets its own part of the result. All replicas must
        come here; the first one's `merge_fn` is called. Raises `RuntimeError` if this
        is not the current replica, or if a replica does not come.
        """

        def merge(given: list[Any]) -> list[Any]:
            merged, named = regroup(given, PerReplica)
            result = merge_fn(self._strategy, *merged, **named)
            return [select(index, result) for index in range(len(given))]

        return self.meet("merge_call", (list(args), dict(kwargs or {})), merge)

    def all_reduce(
        self,
        reduce_op: ReduceOp | str,
        value: Any,
        options: CommunicationOptions | None = None,
    ) -> Any:
        """Return the SUM or MEAN over all replicas of each array in the nest `value`.

        The arrays of a nest travel together; their shapes must agree on all replicas.
        A Python number is this replica's contribution. The result is this replica's to
        change. `GradientPacks.next()` is reduced in place, without a copy.
        """
        op = or_refusal(partial(ReduceOp.parse, reduce_op))
        given = _leaves(value)

        def combine(lists: list[list[Any]]) -> list[list[Any]]:
            extended = self._strategy.extended
            if isinstance(op, Refusal):
                extended.refuse(op.error)
            return extended.all_reduce_lists(op, lists, options)

        reduced = self.meet(f"all_reduce {op}", given, combine)
        return nest.unflatten(value, _own(reduced, given))

    def start_all_reduce(
        self,
        reduce_op: ReduceOp | str,
        value: Any,
        options: CommunicationOptions | None = None,
    ) -> Reduction:
        """Start `all_reduce`; return the `Reduction` that its results come from.

        They come in packs of `bytes_per_pack`, the last arrays of a list first, so that
        some can be used while others move. Packs move in a thread of `collectives`.
        """
        op = ReduceOp.parse(reduce_op)
        extended = self._strategy.extended
        packs = self.meet(
            f"start_all_reduce {op}",
            _leaves(value),
            lambda lists: extended.start_all_reduce_lists(op, lists, options),
        )
        return Reduction(value, packs)

    def all_gather(
        self, value: Any, axis: int, options: CommunicationOptions | None = None
    ) -> Any:
        """Return all replicas' values joined along `axis`, for each array in a nest.

        Lengths along `axis` may differ. The result is this replica's to change. Raises
        `ValueError` for an axis from outside.
        """
        extended = self._strategy.extended
        given = _leaves(value)
        gathered = self.meet(
            f"all_gather along {axis}",
            given,
            lambda lists: extended.all_gather_lists(lists, axis, options),
        )
        return nest.unflatten(value, _own(gathered, given))

    def meet(self, doing: str, given: Any, combine: Combine) -> Any:
        """Meet the other local replicas; return this one's part of what is combined.

        `combine` is called once, in cross-replica context, with a list of what each
        local replica has given, and returns a part for each. `doing` names the meeting,
        which must be the same for all.
        """
        if contexts.current().replica is not self:
            raise RuntimeError(
                f"{doing} on {self!r}, which is not the replica that runs here"
            )
        if self._meeting is not None:
            return self._meeting.meet(self._local_index, doing, given, combine)
        with contexts.entered(contexts.Mode(self._strategy)):
            return combine([given])[0]

    def __enter__(self) -> ReplicaContext:
        contexts.entered(self._mode).__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        contexts.entered(self._mode).__exit__(*exception)

    def __repr__(self) -> str:
        return f"<replica {self._replica_id} of {self.num_replicas_in_sync}>"


def _leaves(value: Any) -> list[Any]:
    """Return the leaves of a nest; of a variable what this replica reads.

    Where the replicas meet, a variable would be read as outside of them.
    """
    return [
        leaf.read_value() if isinstance(leaf, ArrayLike) else leaf
        for leaf in nest.flatten(value)
    ]


def _own(results: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Return results to change: of one replica they may be what was given."""
    return [
        copied(new, place_of(new)) if new is old and is_dense(new) else new
        for new, old in zip(results, given, strict=True)
    ]


def get_strategy() -> Strategy:
    """Return the strategy in use here, the default one outside scopes."""
    return cast("Strategy", contexts.current().strategy)


def get_replica_context() -> ReplicaContext | None:
    """Return the replica that runs here, None in cross-replica context."""
    return cast("ReplicaContext | None", contexts.current().replica)
