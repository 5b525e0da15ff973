"""What the ranks of a group have for moving device arrays; the same on all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from collectives.gpu.arrays import cupy
from collectives.gpu.proving import Proof


class Own(NamedTuple):
    """What one rank has, to be told to the others."""

    device: int
    """Its number in this process."""
    uuid: str
    nccl: int
    """Version of NCCL, 0 without."""
    unaware: str
    """Why the MPI, as it says itself, may not be given device pointers, or empty."""


@dataclass
class Gpus:
    """What all ranks have."""

    device: int = -1
    """This rank's, as CUDA numbers it in this process; -1: none."""
    uuids: tuple[str, ...] = ()
    """Of each rank's GPU."""
    refusals: dict[str, str] = field(default_factory=dict)
    """By the name of a way: why it cannot be had; what can is not in here."""
    proof: Proof = field(default_factory=dict)
    """Of an MPI that says that it may: what became of trying each operation."""
    opened: set[str] = field(default_factory=set)
    """The ways for which nothing is left to be opened."""


def own(unaware: str) -> Own:
    """Return what this rank has: of the device that is current, and of the MPI."""
    module = cupy()
    runtime = module.cuda.runtime
    device = runtime.getDevice()
    return Own(device, uuid_of(runtime, device), nccl_version(module), unaware)


def nccl_version(module: Any) -> int:
    """Return the version of NCCL, such as 22704; 0 where CuPy cannot load it."""
    try:
        from cupy.cuda import nccl
    except ImportError:
        return 0
    try:
        return int(nccl.get_version())
    except Exception:  # a stub of CuPy built without it
        return 0


def agreed(rank: int, everyone: list[Own], hosts: int) -> Gpus:
    """Return what all have together.

    Args:
        rank: this one.
        everyone: what each rank has.
        hosts: on how many hosts they are.
    """
    refusals = {}
    without = [r for r, its in enumerate(everyone) if not its.nccl]
    versions = {its.nccl for its in everyone}
    users: dict[str, list[int]] = {}
    for number, its in enumerate(everyone):
        users.setdefault(its.uuid, []).append(number)
    shared = {uuid: ranks for uuid, ranks in users.items() if len(ranks) > 1}
    if without:
        refusals["nccl"] = f"CuPy finds no NCCL on ranks {without}"
    elif len(versions) > 1:
        shown = ", ".join(f"rank {r}: {its.nccl}" for r, its in enumerate(everyone))
        refusals["nccl"] = f"versions of NCCL differ: {shown}"
    elif shared:
        uuid, ranks = next(iter(shared.items()))
        refusals["nccl"] = f"ranks {ranks} share one GPU, {uuid}"
    unaware = next((its.unaware for its in everyone if its.unaware), "")
    if unaware:
        refusals["cuda_aware"] = unaware
    if hosts > 1:
        refusals["cuda_ipc"] = "the ranks are on several hosts"
        refusals["cuda_aware"] = unaware or "that is proved inside a host, not across"
    else:
        refusals["hierarchical"] = "all ranks are on one host"
    return Gpus(everyone[rank].device, tuple(its.uuid for its in everyone), refusals)


def without_gpus(with_gpu: tuple[bool, ...]) -> Gpus:
    """Return what there is where some rank has no GPU: nothing but the host's ways."""
    lacking = [rank for rank, has in enumerate(with_gpu) if not has]
    reason = f"ranks {lacking} have no GPU, or no CuPy"
    return Gpus(refusals=dict.fromkeys(DEVICE_WAYS, reason))


STAGED = "staged"
DEVICE_WAYS = (
    "nccl",
    "cuda_ipc",
    "nccl_exchange",
    "hierarchical",
    "cuda_aware",
    STAGED,
)


def uuid_of(runtime: Any, device: int) -> str:
    """Return what tells a GPU from all others, in words."""
    properties = runtime.getDeviceProperties(device)
    uuid = properties.get("uuid")
    if not uuid:  # before CUDA 10; then it is told by its place
        places = (properties[f"pci{part}ID"] for part in ("Domain", "Bus", "Device"))
        return "PCI-" + ":".join(f"{place:02x}" for place in places)
    text = bytes(uuid)[:16].hex()
    return "GPU-" + "-".join(
        (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    )
