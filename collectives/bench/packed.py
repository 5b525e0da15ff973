"""What programs do by hand: lay many arrays end to end, call the MPI once, copy back.

The packs are laid out as ours are, in the order of the list, and each has memory of its
own. `mpi_packed` is one pack of everything, `mpi_packed_25M` is what training libraries
do: packs of 25 MiB.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from collectives.bench import raw
from collectives.bench.buffers import allocate
from collectives.bench.case import Array, Call, Setup
from collectives.bench.shapes import tensors
from collectives.packing import make_packs
from collectives.partition import bounds_of

__all__ = ["PACK_BYTES", "all_reduce_many", "broadcast_many"]

PACK_BYTES = {"mpi_packed": 1 << 62, "mpi_packed_25M": 25 << 20}


class Parcel:
    """One pack: its memory, the arrays that go in, and where they come out."""

    def __init__(
        self, memory: Array, inputs: list[Array], outputs: list[Array]
    ) -> None:
        """Use `memory`, as large as the arrays together."""
        bounds = pairwise(bounds_of([x.size for x in inputs]))
        self.memory = memory
        self._inputs = inputs
        self._outputs = [
            (memory[low:high], y)
            for (low, high), y in zip(bounds, outputs, strict=True)
        ]

    def pack(self) -> None:
        """Copy the arrays in."""
        np.concatenate(self._inputs, out=self.memory)

    def unpack(self) -> None:
        """Copy the arrays out."""
        for piece, y in self._outputs:
            y[:] = piece


def all_reduce_many(s: Setup, send: Array, receive: Array) -> Call:
    """Bind one `Allreduce` a pack."""
    parcels, op = _parcels(s, send, receive), raw.op_of(s)
    all_reduce, in_place = s.comm.mpi.Allreduce, raw.in_place()

    def call() -> None:
        for parcel in parcels:
            parcel.pack()
            all_reduce(in_place, parcel.memory, op)
            parcel.unpack()

    return call


def broadcast_many(s: Setup, send: Array, receive: Array) -> Call:
    """Bind one `Bcast` a pack."""
    parcels, root, broadcast = _parcels(s, send, receive), s.root, s.comm.mpi.Bcast

    def from_here() -> None:
        for parcel in parcels:
            parcel.pack()
            broadcast(parcel.memory, root)

    def to_here() -> None:
        for parcel in parcels:
            broadcast(parcel.memory, root)
            parcel.unpack()

    return from_here if s.comm.rank == root else to_here


def _parcels(s: Setup, send: Array, receive: Array) -> list[Parcel]:
    """Return the packs of the arrays that lie in `send` and `receive`."""
    inputs, outputs = (
        [array.reshape(-1) for array in tensors(flat, s.shapes)]
        for flat in (send, receive)
    )
    sizes = [x.size for x in inputs]
    packs = make_packs([send.dtype] * len(sizes), sizes, PACK_BYTES[s.algorithm])
    memory = allocate(send.nbytes, send.dtype.str)
    places = pairwise(bounds_of([pack.elements for pack in packs]))
    return [
        Parcel(
            memory[low:high],
            [inputs[member] for member in pack.members],
            [outputs[member] for member in pack.members],
        )
        for pack, (low, high) in zip(packs, places, strict=True)
    ]
