"""Give device pointers to the MPI, one operation after the other: a program of its own.

`proving.py` runs it as `python -m collectives.gpu.probe REPORT OPERATION...` on two
ranks, or on one. An MPI that cannot do it crashes, hangs, or moves the wrong bytes, and
here all of these are answers. What has been found is written to REPORT as soon as it is
known, one JSON object a line; so the operation that ended the program is the one after
the last line.

Each operation is made as `algorithms/native.py` makes it, with few bytes and with
many, because an MPI moves those in different ways.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from collectives.kernels import Array

COUNTS = (1000, 1 << 18)
"""Elements a rank: what MPIs send at once, and what they send after asking."""
REDUCED = ("float32", "float64", "int32", "int64")
OPS = {"SUM": np.add, "MAX": np.maximum, "PROD": np.multiply}
DEADLINE_S = 120.0
"""This program ends by itself after that, whatever became of its parent."""

Outcome = Iterator[tuple[Any, Array]]
"""Arrays on the device, and what should be in them."""


def pattern(rank: int, count: int, dtype: str = "float32") -> Array:
    """Return what a rank sends: small integers that tell rank and place."""
    return ((np.arange(count) * 3 + rank * 7) % 11 + 1).astype(dtype)


def on_device(array: Array) -> Any:
    """Return a copy on the device that is complete: an MPI knows nothing of streams."""
    import cupy

    copy = cupy.asarray(array)
    cupy.cuda.get_current_stream().synchronize()
    return copy


def blank(count: int, dtype: str = "float32") -> Any:
    """Return an array that holds no result yet."""
    return on_device(np.full(count, 99, dtype))


def send(comm: Any, count: int) -> Outcome:
    """`MPI_Send` and `MPI_Recv`: with the peer, or with this rank itself."""
    peer = comm.size - 1 - comm.rank
    received = blank(count)
    comm.Sendrecv(
        on_device(pattern(comm.rank, count)), peer, recvbuf=received, source=peer
    )
    yield received, pattern(peer, count)


def broadcast(comm: Any, count: int) -> Outcome:
    """`MPI_Bcast`, from each rank."""
    for root in range(comm.size):
        array = blank(count)
        if comm.rank == root:
            array = on_device(pattern(root, count))
        comm.Bcast(array, root=root)
        yield array, pattern(root, count)


def _sums(comm: Any, count: int) -> Iterator[tuple[str, str, Array, Array]]:
    for dtype in REDUCED:
        parts = [pattern(rank, count, dtype) for rank in range(comm.size)]
        for op, ufunc in OPS.items():
            yield op, dtype, parts[comm.rank], ufunc.reduce(parts)


def all_reduce(comm: Any, count: int) -> Outcome:
    """`MPI_Allreduce`, in place and not."""
    from mpi4py import MPI

    for op, dtype, mine, total in _sums(comm, count):
        result, in_place = blank(count, dtype), on_device(mine)
        comm.Allreduce(on_device(mine), result, getattr(MPI, op))
        comm.Allreduce(MPI.IN_PLACE, in_place, getattr(MPI, op))
        yield result, total
        yield in_place, total


def reduce(comm: Any, count: int) -> Outcome:
    """`MPI_Reduce`, to each rank, in place there and not."""
    from mpi4py import MPI

    for op, dtype, mine, total in _sums(comm, count):
        for root in range(comm.size):
            is_root = comm.rank == root
            result, in_place = blank(count, dtype), on_device(mine)
            comm.Reduce(on_device(mine), result, getattr(MPI, op), root=root)
            source = MPI.IN_PLACE if is_root else in_place
            target = in_place if is_root else None
            comm.Reduce(source, target, getattr(MPI, op), root=root)
            if is_root:
                yield result, total
                yield in_place, total


def reduce_scatter(comm: Any, count: int) -> Outcome:
    """`MPI_Reduce_scatter`, with blocks of different lengths."""
    from mpi4py import MPI

    starts = _starts(comm.size, count)
    low, high = starts[comm.rank : comm.rank + 2]
    lengths = np.diff(starts).tolist()
    for op, dtype, mine, total in _sums(comm, count):
        result = blank(high - low, dtype)
        comm.Reduce_scatter(on_device(mine), result, lengths, getattr(MPI, op))
        yield result, total[low:high]


def all_gather(comm: Any, count: int) -> Outcome:
    """`MPI_Allgather`, in place."""
    from mpi4py import MPI

    whole = _with_own_block(comm, [count * rank for rank in range(comm.size + 1)])
    comm.Allgather(MPI.IN_PLACE, whole)
    yield whole, np.concatenate([pattern(rank, count) for rank in range(comm.size)])


def all_gather_v(comm: Any, count: int) -> Outcome:
    """`MPI_Allgatherv`, in place."""
    from mpi4py import MPI

    starts = _starts(comm.size, count)
    whole = _with_own_block(comm, starts)
    comm.Allgatherv(MPI.IN_PLACE, [whole, _extents(starts)])
    yield whole, _joined(starts)


def gather(comm: Any, count: int) -> Outcome:
    """`MPI_Gatherv` to each rank, whose block is in its place."""
    from mpi4py import MPI

    starts = _starts(comm.size, count)
    for root in range(comm.size):
        if comm.rank == root:
            whole = _with_own_block(comm, starts)
            comm.Gatherv(MPI.IN_PLACE, [whole, _extents(starts)], root=root)
            yield whole, _joined(starts)
        else:
            length = starts[comm.rank + 1] - starts[comm.rank]
            comm.Gatherv(on_device(pattern(comm.rank, length)), None, root=root)


def scatter(comm: Any, count: int) -> Outcome:
    """`MPI_Scatterv` from each rank, whose block stays in its place."""
    from mpi4py import MPI

    starts = _starts(comm.size, count)
    for root in range(comm.size):
        if comm.rank == root:
            whole = on_device(_joined(starts))
            comm.Scatterv([whole, _extents(starts)], MPI.IN_PLACE, root=root)
            yield whole, _joined(starts)
        else:
            length = starts[comm.rank + 1] - starts[comm.rank]
            mine = blank(length)
            comm.Scatterv(None, mine, root=root)
            yield mine, pattern(comm.rank, length)


def all_to_all(comm: Any, count: int) -> Outcome:
    """`MPI_Alltoallv`."""
    starts = _starts(comm.size, count)
    low, high = starts[comm.rank : comm.rank + 2]
    incoming = [rank * (high - low) for rank in range(comm.size + 1)]
    result = blank(incoming[-1])
    comm.Alltoallv(
        [on_device(pattern(comm.rank, starts[-1])), _extents(starts)],
        [result, _extents(incoming)],
    )
    parts = [pattern(rank, starts[-1])[low:high] for rank in range(comm.size)]
    yield result, np.concatenate(parts)


def _starts(ranks: int, count: int) -> list[int]:
    """Return where blocks of different lengths begin, and where the last one ends."""
    return [
        count * rank * (rank + 1) // (ranks * (ranks + 1)) for rank in range(ranks + 1)
    ]


def _extents(starts: list[int]) -> tuple[list[int], list[int]]:
    return np.diff(starts).tolist(), starts[:-1]


def _joined(starts: list[int]) -> Array:
    lengths, _ = _extents(starts)
    return np.concatenate([pattern(rank, n) for rank, n in enumerate(lengths)])


def _with_own_block(comm: Any, starts: list[int]) -> Any:
    whole = np.full(starts[-1], 99, np.float32)
    low, high = starts[comm.rank : comm.rank + 2]
    whole[low:high] = pattern(comm.rank, high - low)
    return on_device(whole)


OPERATIONS: dict[str, Callable[[Any, int], Outcome]] = {
    "Send": send,
    "Bcast": broadcast,
    "Allgather": all_gather,
    "Allgatherv": all_gather_v,
    "Gatherv": gather,
    "Scatterv": scatter,
    "Alltoallv": all_to_all,
    "Allreduce": all_reduce,
    "Reduce": reduce,
    "Reduce_scatter": reduce_scatter,
}
"""What can be asked about, by MPI's names. Never `Iallreduce`, `Ireduce` and
`Reduce_local`, which crash on device memory in MPIs that can do everything else."""
REDUCTIONS = ("Allreduce", "Reduce", "Reduce_scatter")


def wrong(comm: Any, operation: str) -> str:
    """Make one operation; return what is wrong on this rank, empty if nothing is."""
    problem = ""
    try:
        for count in COUNTS:
            for got, wanted in OPERATIONS[operation](comm, count):
                differing = int(np.count_nonzero(got.get() != wanted))
                if differing and not problem:  # go on: the other ranks do
                    problem = f"{differing} of {wanted.size} elements are wrong"
    except Exception as error:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
    return problem


def main(report: Path, operations: list[str]) -> None:
    """Try the operations on all ranks, and write what was found on rank 0."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves no file behind
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    import cupy
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    devices = cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(comm.rank % devices).use()
    on_device(np.zeros(1))  # makes the context: nothing that follows waits for that

    def tell(**found: object) -> None:
        if comm.rank == 0:
            with report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")

    comm.Barrier()
    tell(ranks=comm.size)
    for operation in operations:
        everyones = comm.allgather(wrong(comm, operation))
        bad = [f"rank {rank}: {text}" for rank, text in enumerate(everyones) if text]
        tell(operation=operation, wrong="; ".join(bad))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
