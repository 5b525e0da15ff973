"""What ranks tell each other about their tests, over a communicator of their own.

Nothing here blocks inside MPI: a rank that waits sleeps and polls, so its other threads
run and the hang guard can say for whom it waits.
"""

import os
import time
from typing import Any

# A process with one of these was started by some mpirun.
RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")

POLL_S = 0.0005


class Exchange:
    """All-gather of small Python objects between the ranks of one pytest run."""

    def __init__(self) -> None:
        """Join the other ranks, or be alone when no launcher started this process."""
        self.rank, self.size = 0, 1
        self.awaited: list[int] = []
        if any(name in os.environ for name in RANK_VARIABLES):
            from mpi4py import MPI

            self._mpi = MPI
            self._comm = MPI.COMM_WORLD.Dup()
            self.rank, self.size = self._comm.rank, self._comm.size

    def all_gather(self, value: Any) -> list[Any]:
        """Return what every rank gave, by rank; `awaited` names those still missing."""
        gathered = {self.rank: value}
        others = [peer for peer in range(self.size) if peer != self.rank]
        pending = [self._comm.isend(value, peer) for peer in others]
        receiving: dict[int, Any] = {}
        while pending or len(gathered) < self.size:
            pending = [request for request in pending if not request.test()[0]]
            self.awaited = [peer for peer in others if peer not in gathered]
            for peer in self.awaited:
                if peer not in receiving:
                    message = self._comm.improbe(source=peer)
                    if message is None:
                        continue
                    receiving[peer] = message.irecv()
                done, received = receiving[peer].test()
                if done:
                    gathered[peer] = received
            if pending or len(gathered) < self.size:
                time.sleep(POLL_S)
        self.awaited = []
        return [gathered[peer] for peer in range(self.size)]
