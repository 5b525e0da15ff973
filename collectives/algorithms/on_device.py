"""The table of algorithms for arrays on GPUs, in the order in which `auto` tries them.

They take the same tasks as those of the host, with flat CuPy arrays in them; the
array's device and the caller's stream are current. Whatever is not in here goes by way
of the host (calls/staging.py), by any algorithm of `TABLE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from collectives.algorithms import (
    HIERARCHICAL,
    TABLE,
    Algorithm,
    cuda_aware,
    cuda_ipc,
    device_lanes,
    nccl,
)
from collectives.algorithms import nccl_exchange as exchange
from collectives.algorithms.device_window import open_ipc
from collectives.algorithms.stepwise import Task
from collectives.eligibility import out_of_order
from collectives.gpu import streams
from collectives.group import Group
from collectives.kernels import Kernel
from collectives.opening_aware import open_cuda_aware
from collectives.opening_nccl import open_nccl
from collectives.options import Options


class Way(NamedTuple):
    """One way to move device arrays."""

    rows: Mapping[str, Algorithm]
    """By collective."""
    refusal: Callable[[str, Kernel | None], str]
    """Why it cannot do a collective on such arrays; empty where it can."""
    open: Callable[[Group, float], None] | None = None
    """Opens it, before the first call that goes this way; see `open_way`."""
    operations: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """What of the MPI must have been proved, by collective."""
    by: str = ""
    """The way whose library it uses, and which it opens with; empty: its own."""


def alone(task: Task) -> None:
    """Give a rank that is alone its own contribution."""
    if task.source is not task.work:
        task.work[...] = task.source
    if task.kernel is not None:
        task.kernel.finish(task.work, task.group.divisor)
    streams.finish(task.group, task.timeout_s)


def nothing(task: Task) -> None:
    """Leave what is there: the identity, in a scan of those before the first rank."""
    streams.finish(task.group, task.timeout_s)


ALONE, NCCL, IPC = "alone", "nccl", "cuda_ipc"
WAYS: dict[str, Way] = {
    ALONE: Way(
        {
            name: Algorithm(
                nothing if name == "exclusive_scan" else alone,
                "a copy",
                in_order=True,
                sums_stay=True,
            )
            for name in TABLE
        },
        lambda collective, kernel: "",
    ),
    NCCL: Way(exchange.NCCL_ROWS, nccl.refusal, open_nccl),
    IPC: Way(cuda_ipc.ROWS, cuda_ipc.refusal, open_ipc),
    "nccl_exchange": Way(exchange.ROWS, exchange.refusal, open_nccl, by=NCCL),
    "cuda_aware": Way(
        cuda_aware.ROWS, cuda_aware.refusal, open_cuda_aware, cuda_aware.OPERATIONS
    ),
    HIERARCHICAL: Way(device_lanes.ROWS, device_lanes.refusal, open_ipc),
}


def refusal(
    way: str, collective: str, kernel: Kernel | None, group: Group, options: Options
) -> str:
    """Return why a way is not to be had for a call; empty where it is."""
    row = WAYS[way].rows.get(collective)
    if row is None:
        return f"it knows no {collective}"
    if way == ALONE and group.size > 1:
        return f"there are {group.size} ranks"
    why_not = out_of_order(row, kernel, options)
    if why_not:
        return why_not
    if kernel is not None and kernel.in_order:
        return "a function as op is called with host arrays"
    assert group.gpus is not None, "the ranks have told each other what they have"
    unproved = map(group.gpus.proof.get, WAYS[way].operations.get(collective, ()))
    return (
        lacking(way, group)
        or WAYS[way].refusal(collective, kernel)
        or next(filter(None, unproved), "")
    )


def lacking(way: str, group: Group) -> str:
    """Return why the ranks do not have what a way needs; empty where they do."""
    assert group.gpus is not None, "the ranks have told each other what they have"
    return group.gpus.refusals.get(_library(way), "")


def unopened(way: str, group: Group) -> bool:
    """Tell whether something is to be opened before a call can go a way."""
    assert group.gpus is not None, "the ranks have told each other what they have"
    return WAYS[way].open is not None and _library(way) not in group.gpus.opened


def open_way(way: str, group: Group, timeout_s: float) -> None:
    """Open a way; once, by all members. What fails on one is refused to all."""
    assert group.gpus is not None, "the ranks have told each other what they have"
    open_it = WAYS[way].open
    if open_it is not None:
        open_it(group, timeout_s)
        group.gpus.opened.add(_library(way))


def _library(way: str) -> str:
    return WAYS[way].by or way
