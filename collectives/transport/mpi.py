"""Messages over MPI: nonblocking sends and receives, polled, on a private communicator.

No call in here blocks: a thread blocked inside MPI slows every other rank's progress
by orders of magnitude and cannot be given a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from collectives.errors import ExhaustedError
from collectives.transport import Buffer, Pending


class _Request:
    """A thin name for `MPI.Request.Test`."""

    __slots__ = ("done",)

    def __init__(self, request: Any) -> None:
        self.done = request.Test


def another(rank: int, make: Callable[..., Any], *arguments: Any) -> Any:
    """Return a communicator that `make` makes.

    Raises:
        ExhaustedError: the MPI makes no more; MPICH stops after 2048.
    """
    try:
        return make(*arguments)
    except RuntimeError as error:  # mpi4py's own is one
        reason = str(error).strip().rpartition("\n")[2]
        raise ExhaustedError(
            f"rank {rank}: the MPI made no communicator for a new group; this process "
            f"holds {MPIMessages.held} open, close() those that are not needed "
            f"({reason})"
        ) from None


class MPIMessages:
    """Point-to-point messages over an mpi4py communicator that nobody else uses."""

    held = 0
    """How many of these have been made in this process and not been closed."""

    def __init__(self, comm: Any) -> None:
        """Use `comm`; `close()` frees it."""
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        MPIMessages.held += 1
        from mpi4py import MPI

        self._any, self._status = MPI.ANY_SOURCE, MPI.Status()

    def send(self, peer: int, data: Buffer, tag: int) -> Pending:
        """Start sending `data` to `peer`."""
        return _Request(self.comm.Isend(data, peer, tag))

    def receive(self, peer: int, data: Buffer, tag: int) -> Pending:
        """Start receiving `len(data)` bytes from `peer`."""
        return _Request(self.comm.Irecv(data, peer, tag))

    def arrived(self, tag: int) -> int:
        """Return a rank whose message with `tag` waits to be received, or -1."""
        status = self._status
        if self.comm.Iprobe(self._any, tag, status):
            return int(status.Get_source())
        return -1

    def derive(self, ranks: Sequence[int]) -> MPIMessages:
        """Return a transport over a communicator of some of the ranks.

        Raises:
            ExhaustedError: the MPI makes no more; MPICH stops after 2048.
        """
        everybody = self.comm.Get_group()
        some = everybody.Incl(list(ranks))
        try:
            if list(ranks) == list(range(self.size)):
                return MPIMessages(another(self.rank, self.comm.Dup))
            return MPIMessages(another(self.rank, self.comm.Create_group, some))
        finally:
            some.Free()
            everybody.Free()

    def close(self) -> None:
        """Free the communicator; collective in MPI, so only called on all ranks."""
        comm, self.comm = self.comm, None
        if comm is not None:
            MPIMessages.held -= 1
            comm.Free()
