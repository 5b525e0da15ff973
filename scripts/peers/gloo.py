"""Time all_reduce by gloo, as PyTorch brings it; over the loopback interface."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from timing import PACK_BYTES, Seconds, bytes_of, measure, run


def body(
    rank: int,
    ranks: int,
    sizes: list[int],
    shapes: list[tuple[int, ...]],
    folder: Path,
) -> Seconds:
    """Be one rank."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks
    )
    total = torch.ones(5)
    dist.all_reduce(total)
    assert (total == ranks).all(), total
    seconds = {}
    for nbytes in sizes:
        array = torch.zeros(nbytes // 4)
        seconds[str(nbytes)] = measure(
            nbytes, lambda array=array: dist.all_reduce(array), dist.barrier
        )
    arrays = [torch.zeros(shape) for shape in shapes]
    packs = in_packs(arrays)
    seconds["shapes"] = measure(
        bytes_of(shapes), lambda: all_reduce_many(packs), dist.barrier
    )
    dist.destroy_process_group()
    return seconds


def in_packs(
    arrays: list[torch.Tensor],
) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Return packs in the order of the list, each with memory of its own."""
    packs: list[list[torch.Tensor]] = [[]]
    room = PACK_BYTES
    for array in arrays:
        if packs[-1] and array.nbytes > room:
            packs.append([])
            room = PACK_BYTES
        packs[-1].append(array.view(-1))
        room -= array.nbytes
    return [(torch.zeros(sum(x.numel() for x in pack)), pack) for pack in packs]


def all_reduce_many(packs: list[tuple[torch.Tensor, list[torch.Tensor]]]) -> None:
    """Copy the arrays into their pack, all_reduce it, and copy them back."""
    for memory, arrays in packs:
        torch.cat(arrays, out=memory)
        dist.all_reduce(memory)
        pieces = memory.split([x.numel() for x in arrays])
        for array, piece in zip(arrays, pieces, strict=True):
            array.copy_(piece)


if __name__ == "__main__":
    run(lambda: f"gloo of PyTorch {torch.__version__}, 25 MiB packs", body)
