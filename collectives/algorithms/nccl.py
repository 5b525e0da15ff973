"""Collectives on device memory through NCCL.

What only moves goes as bytes, so that any dtype can. What is combined goes in a form
that NCCL reduces exactly as the rules of `kernels` want it, or not at all
(nccl_forms.py). What NCCL has no function for, such as a call with uneven blocks, is
several of its calls *together*, which it carries out at once. Bytes on the wire and
rounds are NCCL's affair.

Everything is queued on a stream of NCCL's own, after what the caller has queued on the
current one, and waited for here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from collectives.algorithms.nccl_forms import Form, form_of
from collectives.algorithms.stepwise import Task
from collectives.gpu.streams import finish
from collectives.kernels import Kernel
from collectives.partition import Bounds
from collectives.transport.nccl import Nccl, library, together

TOGETHER = 256
"""Arrays in one group of NCCL's calls, whose preparation grows with them."""

Block = tuple[int, int]
Parcel = tuple[int, Block]
"""A peer, and where what it gets or gives begins and ends."""


def refusal(collective: str, kernel: Kernel | None) -> str:
    """Return why NCCL cannot do a call; empty where it can."""
    if kernel is None or form_of(kernel) is not None:
        return ""
    return f"NCCL has no {kernel.op} for {kernel.work_dtype}"


def all_reduce(task: Task) -> None:
    """`ncclAllReduce`."""
    kernel, form, kind, op = _reduction(task)
    with Completing(task) as nccl:
        sent, got = form.sides(task.source, task.work)

        def calls(comm: Any, stream: int) -> None:
            if sent.size:
                comm.allReduce(at(sent), at(got), sent.size, kind, op, stream)

        nccl.launch("ncclAllReduce", task.timeout_s, calls)
        _decode(form, got, task.work)
        kernel.finish(task.work, task.group.divisor)


def flowing_all_reduce(
    task: Task, sources: Sequence[Any], works: Sequence[Any]
) -> None:
    """`ncclAllReduce` of each of several arrays of one dtype, together, not packed."""
    kernel, form, kind, op = _reduction(task)
    with Completing(task) as nccl:
        sides = [form.sides(*both) for both in zip(sources, works, strict=True)]
        for first in range(0, len(sides), TOGETHER):
            some = [both for both in sides[first : first + TOGETHER] if both[0].size]

            def calls(comm: Any, stream: int, some: Sequence[Any] = some) -> None:
                with together():
                    for sent, got in some:
                        where = at(sent), at(got)
                        comm.allReduce(*where, sent.size, kind, op, stream)

            nccl.launch("ncclAllReduce", task.timeout_s, calls)
        for (_, got), work in zip(sides, works, strict=True):
            _decode(form, got, work)
            kernel.finish(work, task.group.divisor)


def reduce(task: Task) -> None:
    """`ncclReduce`."""
    kernel, form, kind, op = _reduction(task)
    with Completing(task) as nccl:
        sent, got = form.sides(task.source, task.work)

        def calls(comm: Any, stream: int) -> None:
            if sent.size:
                where = at(sent), at(got)
                comm.reduce(*where, sent.size, kind, op, task.root, stream)

        nccl.launch("ncclReduce", task.timeout_s, calls)
        if task.group.rank == task.root:
            _decode(form, got, task.work)
            kernel.finish(task.work, task.group.divisor)


def reduce_scatter(task: Task) -> None:
    """`ncclReduceScatter`; uneven blocks by an `ncclReduce` to each rank, together."""
    kernel, form, kind, op = _reduction(task)
    blocks = blocks_of(task.bounds, form.numbers(task.work))
    low, high = blocks[task.group.rank]
    with Completing(task) as nccl:
        sent, got = form.sides(task.source, task.work)

        def evenly(comm: Any, stream: int) -> None:
            if sent.size:
                where = at(sent), at(got, low)
                comm.reduceScatter(*where, high - low, kind, op, stream)

        def one_by_one(comm: Any, stream: int) -> None:
            with together():
                for root, (start, stop) in enumerate(blocks):
                    if stop > start:
                        where = at(sent, start), at(got, start)
                        comm.reduce(*where, stop - start, kind, op, root, stream)

        if _even(blocks):
            nccl.launch("ncclReduceScatter", task.timeout_s, evenly)
        else:
            nccl.launch("ncclReduce", task.timeout_s, one_by_one)
        own = task.work[slice(*blocks_of(task.bounds, 1)[task.group.rank])]
        _decode(form, got[low:high], own)
        kernel.finish(own, task.group.divisor)


def broadcast(task: Task) -> None:
    """`ncclBroadcast`."""
    source, work = in_bytes(task.source), in_bytes(task.work)
    byte = library().NCCL_UINT8

    def calls(comm: Any, stream: int) -> None:
        if work.size:
            where = at(source), at(work)
            comm.broadcast(*where, work.size, byte, task.root, stream)

    with Completing(task) as nccl:
        nccl.launch("ncclBroadcast", task.timeout_s, calls)


def all_gather(task: Task) -> None:
    """`ncclAllGather`; uneven blocks by an `ncclBroadcast` from each, together."""
    with Completing(task) as nccl:
        spread(task, nccl, task.source)


def spread(task: Task, nccl: Nccl, source: Any) -> None:
    """Give everybody every rank's block of `source`, in `task.work`."""
    mine, work = in_bytes(source), in_bytes(task.work)
    blocks = blocks_of(task.bounds, task.work.itemsize)
    low, high = blocks[task.group.rank]
    byte = library().NCCL_UINT8

    def evenly(comm: Any, stream: int) -> None:
        if work.size:
            comm.allGather(at(mine, low), at(work), high - low, byte, stream)

    def one_by_one(comm: Any, stream: int) -> None:
        with together():
            for root, (start, stop) in enumerate(blocks):
                if stop > start:
                    where = at(mine, start), at(work, start)
                    comm.broadcast(*where, stop - start, byte, root, stream)

    if _even(blocks):
        nccl.launch("ncclAllGather", task.timeout_s, evenly)
    else:
        nccl.launch("ncclBroadcast", task.timeout_s, one_by_one)


def gather(task: Task) -> None:
    """`ncclSend` from each to the root, where `ncclRecv` takes it."""
    with Completing(task) as nccl:
        bring(task, nccl)


def bring(task: Task, nccl: Nccl) -> None:
    """Give the root every rank's block of `task.work`."""
    blocks = list(enumerate(blocks_of(task.bounds, task.work.itemsize)))
    if task.group.rank == task.root:
        exchange(task, nccl, task.work, [], task.work, blocks)
    else:
        mine = [(task.root, blocks[task.group.rank][1])]
        exchange(task, nccl, task.work, mine, task.work, [])


def all_to_all(task: Task) -> None:
    """`ncclSend` to and `ncclRecv` from each peer, together."""
    assert task.source_bounds is not None, "each rank cuts its own array"
    sends = list(enumerate(blocks_of(task.source_bounds, task.work.itemsize)))
    receives = list(enumerate(blocks_of(task.bounds, task.work.itemsize)))
    with Completing(task) as nccl:
        exchange(task, nccl, task.source, sends, task.work, receives)


def exchange(
    task: Task,
    nccl: Nccl,
    source: Any,
    sends: Sequence[Parcel],
    target: Any,
    receives: Sequence[Parcel],
) -> None:
    """Send bytes of one array and receive some into another, all at once.

    What is this rank's own is left out.
    """
    mine, theirs = in_bytes(source), in_bytes(target)
    own, byte = task.group.rank, library().NCCL_UINT8

    def calls(comm: Any, stream: int) -> None:
        with together():
            for peer, (low, high) in sends:
                if high > low and peer != own:
                    comm.send(at(mine, low), high - low, byte, peer, stream)
            for peer, (low, high) in receives:
                if high > low and peer != own:
                    comm.recv(at(theirs, low), high - low, byte, peer, stream)

    nccl.launch("ncclSend and ncclRecv", task.timeout_s, calls)


def _reduction(task: Task) -> tuple[Kernel, Form, int, int]:
    """Return the kernel of a task, and how NCCL does it, with its numbers for that."""
    kernel = task.kernel
    assert kernel is not None, "a task that combines needs a kernel"
    form = form_of(kernel)
    assert form is not None, "what NCCL cannot do has been refused"
    return kernel, form, *form.codes(library())


def _decode(form: Form, got: Any, out: Any) -> None:
    if form.decode is not None:
        form.decode(got, out)


class Completing:
    """Inside, work is queued on NCCL's stream; at the end it has been done.

    What fails leaves NCCL aborted. Written out, as it is part of every call's latency.
    """

    __slots__ = ("_nccl", "_task")

    def __init__(self, task: Task) -> None:
        self._task = task
        self._nccl: Nccl = task.group.nccl

    def __enter__(self) -> Nccl:
        self._nccl.begin()
        return self._nccl

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        task, nccl = self._task, self._nccl
        try:
            if kind is None:
                finish(task.group, task.timeout_s, nccl.check)
        except BaseException as late:
            kind = type(late)
            raise
        finally:
            nccl.end()
            if kind is not None:
                task.group.stranded.append(task)  # NCCL may still write there
                nccl.abort()


def in_bytes(flat: Any) -> Any:
    """Return the same memory as bytes."""
    return flat.view("uint8")


def at(array: Any, element: int = 0) -> int:
    """Return the address of an element."""
    address: int = array.data.ptr
    return address + element * array.itemsize if element else address


def blocks_of(bounds: Bounds, numbers: int) -> list[Block]:
    """Return where blocks begin and end, of that many numbers an element."""
    return list(pairwise(bound * numbers for bound in bounds))


def _even(blocks: Sequence[Block]) -> bool:
    return len({high - low for low, high in blocks}) == 1
