"""A trial with arrays on GPUs: which ways there are, and whether sums are right."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from collectives.algorithms.on_device import ALONE, WAYS
from collectives.communicator import Communicator
from collectives.errors import CollectiveError
from collectives.gpu import proving
from collectives.gpu.arrays import cupy

ELEMENTS = 1000


@dataclass(frozen=True)
class Trial:
    """What became of it; the same on all ranks."""

    refusals: dict[str, str]
    """Why a way cannot be had, empty where it can; by its name, as `auto` goes on."""
    cuda_aware: str
    """Whether the MPI may be given device pointers, in a line."""
    problem: str = ""


def trial(comm: Communicator) -> Trial | None:
    """Reduce a device array of each rank; None where not every rank has a GPU.

    Collective. Each rank takes the GPU of its number among those of its host.
    """
    if not comm.topology.with_gpu or not all(comm.topology.with_gpu):
        return None
    everyones = comm.all_gather_object(_ready(comm))
    bad = [f"rank {rank}: {why}" for rank, why in enumerate(everyones) if why]
    if bad:
        return Trial({}, "unknown", f"no array can be made on a GPU; {bad[0]}")
    module = cupy()
    ones = module.ones(ELEMENTS, "float32")
    problem, wrong = "", False
    try:
        total = comm.all_reduce(ones * (comm.rank + 1)).get()
        wrong = bool((total != comm.size * (comm.size + 1) // 2).any())
    except CollectiveError as error:
        problem = f"a trial all_reduce of device arrays failed: {error}"
    if any(comm.all_gather_object(wrong)):
        problem = "a trial all_reduce of device arrays gave wrong sums"
    gpus = comm._group.gpus
    assert gpus is not None, "a call with device arrays was made"
    refusals = {way: gpus.refusals.get(way, "") for way in WAYS if way != ALONE}
    with suppress(CollectiveError):  # what has been proved is not all that it needs
        comm.all_reduce(ones, algorithm="cuda_aware")
    no = refusals.get("cuda_aware")
    aware = f"no: {no}" if no else proving.summary(gpus.proof)
    if any(gpus.proof.values()):
        refusals["cuda_aware"] = aware
    return Trial(refusals, aware, problem)


def _ready(comm: Communicator) -> str:
    """Take a GPU and compute on it; return what is wrong, empty if nothing is."""
    try:
        runtime = cupy().cuda.runtime
        runtime.setDevice(comm.topology.local_rank % runtime.getDeviceCount())
        (cupy().ones(ELEMENTS, "float32") * 2).get()
    except Exception as error:  # of CuPy, of the compiler, of the driver
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""
