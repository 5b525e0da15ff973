"""Our calls on registered arrays, which the ranks of a host share."""

from __future__ import annotations

from functools import partial

import numpy as np

import collectives
from collectives.bench.case import Array, Setup, Staged
from collectives.bench.shapes import tensors

__all__ = ["all_reduce_many", "all_reduce_shared"]


def all_reduce_shared(s: Setup, send: Array, receive: Array) -> Staged:
    """Bind `all_reduce` to one result a host, which every rank reads if `touched`."""
    latest: list[Array] = [receive]
    all_reduce = partial(
        s.comm.all_reduce, send, s.op, out=collectives.SHARED, algorithm=s.algorithm
    )

    def call() -> None:
        latest[0] = all_reduce().array

    def touch() -> None:
        call()
        np.bitwise_or.reduce(latest[0].view(np.uint8))

    def after() -> None:
        receive[:] = latest[0]

    return Staged(touch if s.form.touched else call, after=after)


def all_reduce_many(s: Setup, send: Array, receive: Array) -> Staged:
    """Bind `all_reduce_many` to gradients that lie in registered packs."""
    inputs, outputs = tensors(send, s.shapes), tensors(receive, s.shapes)
    packs = s.comm.packs(inputs)
    latest = [packs.next()]

    def before() -> None:
        latest[0] = packs.next()
        for view, x in zip(latest[0], inputs, strict=True):
            view[...] = x

    def call() -> None:
        (views,) = latest
        s.comm.all_reduce_many(views, s.op, out=views, algorithm=s.algorithm)

    def after() -> None:
        for y, view in zip(outputs, latest[0], strict=True):
            y[...] = view

    return Staged(call, before, after, afresh=True)
