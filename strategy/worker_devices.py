"""Which devices each rank of a job takes, agreed by all ranks."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import collectives
from strategy.devices import gpus, local_devices, place_named, share_of
from strategy.errors import ClusterError


def agreed_devices(
    comm: collectives.Communicator,
    devices: Sequence[str] | None,
    job: str,
    task: int,
) -> list[tuple[str, ...]]:
    """Return the names of each rank's devices: those given, else a GPU, else its CPU.

    Without any given a rank takes the GPU that is its own, see `share_of`. Collective.
    Raises `ClusterError` on all ranks if one has others than it can have, or not as
    many as the rest.
    """
    seen = comm.all_gather_object(gpus())
    if not devices and seen[comm.rank]:
        local = comm.topology.local_ranks
        devices = [f"GPU:{share_of(comm.rank, local, seen)}"]
        if comm.rank == local[0]:
            _tell_of_sharing(local, seen)
    try:
        mine: tuple[str, ...] | str = local_devices(devices or ["CPU:0"], job, task)
    except (ValueError, RuntimeError, collectives.UnsupportedError) as error:
        mine = str(error)
    everywhere = comm.all_gather_object(mine)
    for rank, theirs in enumerate(everywhere):
        if isinstance(theirs, str):
            raise ClusterError(f"rank {rank}: {theirs}")
        if len(theirs) != len(everywhere[0]):
            raise ClusterError(
                f"rank 0 has {len(everywhere[0])} device(s), rank {rank} has "
                f"{len(theirs)}; wanted as many on every rank"
            )
    return everywhere


def without_gpu(everywhere: Sequence[Sequence[str]]) -> str:
    """Return which ranks have devices that are no GPUs, in words; empty: none."""
    ranks = [
        rank
        for rank, names in enumerate(everywhere)
        if any(place_named(name) is None for name in names)
    ]
    return f"rank(s) {' '.join(map(str, ranks))} have no GPU" if ranks else ""


def _tell_of_sharing(local: Sequence[int], seen: Sequence[Sequence[str]]) -> None:
    """Say so where ranks of a host are more than the GPUs that they see."""
    for names in dict.fromkeys(tuple(seen[rank]) for rank in local):
        ranks = [rank for rank in local if tuple(seen[rank]) == names]
        if names and len(ranks) > len(names):
            logging.getLogger(__name__).warning(
                "ranks %s share %d GPU(s), in turns", ranks, len(names)
            )
