"""A group's window in the memory of GPUs, and the registered arrays that lie there."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from collectives.kernels import Array
from collectives.transport.cuda_ipc import Exported, Opened, array_at, free
from collectives.transport.exported import Shared
from collectives.window import Window

DTYPES_KEPT = 32


class DeviceWindow:
    """The parts of all ranks of a host: two slots each, used in turn by round.

    As `Window`, in the memory of GPUs. The turn is that of the host's window: the board
    tells of rounds of both.
    """

    def __init__(
        self, host: Window, memory: list[Exported | Opened], slot_bytes: int, rank: int
    ) -> None:
        """Use the parts, by rank; this rank's own is `Exported`."""
        self._host, self._memory, self.slot_bytes = host, memory, slot_bytes
        self.shared = Shared(rank, len(memory))
        self.slots = lru_cache(DTYPES_KEPT)(self._slots)

    @property
    def turn(self) -> int:
        """Rounds so far: the next one uses slot `turn & 1`."""
        return self._host.turn

    @turn.setter
    def turn(self, rounds: int) -> None:
        self._host.turn = rounds

    def length(self, itemsize: int) -> int:
        """Return how many elements a slot holds."""
        return self.slot_bytes // itemsize

    def _slots(self, dtype: np.dtype[Any]) -> tuple[list[Array], list[Array]]:
        """Return the slots of the two turns, by rank."""
        size = self.length(dtype.itemsize)
        first, second = (
            [array_at(memory, offset, dtype, size) for memory in self._memory]
            for offset in (0, self.slot_bytes)
        )
        return first, second

    def leave(self) -> None:
        """Close the peers' parts: this rank reads them no more."""
        self.slots.cache_clear()
        self.shared.leave()
        for memory in self._memory:
            if isinstance(memory, Opened):
                memory.close()

    def free(self) -> None:
        """Free the own part, after all others have left."""
        self.leave()
        self.shared.free()
        for memory in self._memory:
            if isinstance(memory, Exported):
                free(memory)
        self._memory = []
