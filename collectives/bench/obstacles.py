"""What stands in the way of a request on these ranks, before anything is allocated."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from collectives.bench import buffers, device
from collectives.bench.arguments import Request
from collectives.bench.cases import CUDA, cases_on
from collectives.bench.raw import MPI_OPS, UNKNOWN_DTYPES
from collectives.bench.raw_nccl import DTYPES as NCCL_DTYPES
from collectives.bench.raw_nccl import OPS as NCCL_OPS
from collectives.bench.usage import Usage
from collectives.communicator import Communicator
from collectives.errors import UnsupportedError
from collectives.kernels import kernel_for

__all__ = ["choose_algorithms", "draft", "obstacle"]


def choose_algorithms(comm: Communicator, request: Request) -> tuple[str, ...] | Usage:
    """Return what to compare; by default the raw call, where there is one, and auto."""
    case = cases_on(request.device)[request.collective]
    if request.device == CUDA:
        return _choose_on_device(comm, request)
    refusal = None
    if comm.mpi is None:
        refusal = "needs mpi4py and an MPI; this world has none"
    elif case.reduces and request.op not in MPI_OPS:
        refusal = f"has no op {request.op!r}; it has: {' '.join(MPI_OPS)}"
    elif request.dtype in UNKNOWN_DTYPES:
        refusal = f"has no {request.dtype}"
    elif request.overlap and case.listed:
        refusal = f"is a loop over the arrays here; --overlap of {case.name} needs auto"
    if request.algorithms is None:
        return (case.baseline, "auto") if refusal is None else ("auto",)
    for name in request.algorithms:
        if refusal is not None and case.foreign(name):
            return Usage(f"algorithm {name!r} {refusal}")
    return request.algorithms


def _choose_on_device(comm: Communicator, request: Request) -> tuple[str, ...] | Usage:
    """Return what to compare with arrays on GPUs: NCCL raw, copies, auto, staging."""
    case = cases_on(request.device)[request.collective]
    refusal = device.refused(comm, "nccl", device.allocate(8, request.dtype))
    if request.dtype not in NCCL_DTYPES:
        refusal = f"it has no {request.dtype}"
    elif case.reduces and request.op not in NCCL_OPS:
        refusal = f"it has no op {request.op!r}"
    elif not case.raw:
        refusal = f"it has no {case.name}"
    if request.algorithms is None:
        raw = () if refusal else (case.baseline,)
        return (*raw, *case.by_hand, "auto", "staged")
    if refusal and case.baseline in request.algorithms:
        return Usage(f"algorithm {case.baseline!r}: {refusal}")
    return request.algorithms


def obstacle(comm: Communicator, request: Request, largest: int) -> Usage | None:
    """Return why this cannot run here; `largest` is the largest size in bytes."""
    case = cases_on(request.device)[request.collective]
    if comm.size < case.fewest_ranks:
        return Usage(
            f"{case.name} needs {case.fewest_ranks} ranks or more; there is {comm.size}"
        )
    if case.rooted and request.root >= comm.size:
        return Usage(f"-r {request.root} is not a rank; there are {comm.size} ranks")
    if case.reduces:
        try:
            kernel = kernel_for(request.op, np.dtype(request.dtype))
        except UnsupportedError as error:
            return Usage(str(error))
        if kernel.result_dtype != request.dtype:
            return Usage(
                f"op {request.op} of {request.dtype} gives {kernel.result_dtype} and "
                "cannot be done in place; wanted a float or complex dtype"
            )
    arrays = 3 if case.listed else 2  # packs have memory of their own
    arrays += 2 * request.registered
    where, sharing = "host", comm.topology.local_size
    available = buffers.available_bytes()
    if request.device == CUDA:
        arrays, where, sharing = 4, "GPU", 1  # and what algorithms work in
        available = device.available_bytes(comm)
    needed = arrays * largest * sharing
    if available is not None and needed > available:
        less = "--shapes" if case.listed else f"-e {request.max_bytes}"
        return Usage(
            f"{less} needs {needed >> 20} MiB on the {where} of rank {comm.rank}, "
            f"which has {available >> 20} MiB; give something smaller"
        )
    if request.json is not None and comm.rank == 0:
        return _unwritable(Path(request.json))
    return None


def _unwritable(path: Path) -> Usage | None:
    """Return why a file cannot be written; asked before minutes are spent on it."""
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a directory")
        draft(path).touch()
        draft(path).unlink()
    except OSError as error:
        return Usage(f"cannot write --json {path}: {error.strerror or error}")
    return None


def draft(path: Path) -> Path:
    """Return where a file is written before it gets its name."""
    return path.with_name(f".{path.name}.{os.getpid()}")
