"""Derivatives of the collectives, for backward passes that are written by hand.

Inside run(), each function here does what the replica context's does and also returns
what takes a gradient back through it. Going back is collective too: all replicas must
do it, in the same order.

    y, backward = gradients.all_reduce("SUM", x * x)
    dx = 2 * x * backward(dy)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from strategy import nest
from strategy.options import CommunicationOptions
from strategy.reduce_op import ReduceOp
from strategy.replica_context import ReplicaContext, get_replica_context
from strategy.values import plain

Backward = Callable[[Any], Any]
"""From a gradient by the result to one by the value, nests of the same structure."""


def all_reduce(
    reduce_op: ReduceOp | str, value: Any, options: CommunicationOptions | None = None
) -> tuple[Any, Backward]:
    """Return the all-reduce of `value`, and its backward: an all-reduce by the same op.

    With z the sum over replicas of what each makes of the result y, dz/dx on a replica
    is the SUM over all of dz/dy, or their MEAN.
    """
    context = _context()
    result = context.all_reduce(reduce_op, value, options)
    return result, lambda gradient: context.all_reduce(reduce_op, gradient, options)


def all_gather(
    value: Any, axis: int, options: CommunicationOptions | None = None
) -> tuple[Any, Backward]:
    """Return the all-gather of `value`, and its backward.

    That adds up the gradients of all replicas and takes this replica's part of them.
    """
    context = _context()
    result = context.all_gather(value, axis, options)
    lengths = [np.int64(plain(leaf).shape[axis]) for leaf in nest.flatten(value)]
    starts = [np.int64(0)] * len(lengths)
    if lengths and context.num_replicas_in_sync > 1:
        everywhere = context.all_gather(np.array([lengths]), axis=0)
        starts = list(everywhere[: int(context.replica_id_in_sync_group or 0)].sum(0))

    def backward(gradient: Any) -> Any:
        total = context.all_reduce(ReduceOp.SUM, gradient, options)
        parts = []
        for leaf, start, length in zip(
            nest.flatten(total), starts, lengths, strict=True
        ):
            inside = (slice(None),) * axis + (slice(start, start + length),)
            parts.append(leaf[inside])
        return nest.unflatten(value, parts)

    return result, backward


def _context() -> ReplicaContext:
    context = get_replica_context()
    if context is None:
        raise RuntimeError("wanted to be inside run(), where there is a replica")
    return context
