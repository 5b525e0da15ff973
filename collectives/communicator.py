"""The facade: every collective, on one set of ranks, under one set of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np

from collectives.agreement import agree
from collectives.calls import Call, Caller
from collectives.descriptor import Descriptor
from collectives.errors import CollectiveError
from collectives.group import Group
from collectives.kernels import ReduceOp
from collectives.options import Options
from collectives.selection import Choice
from collectives.topology import Topology
from collectives.verdicts import death, mismatch, silence
from collectives.waiting import PeerLost, TimedOut

LEAVE_S = 1e9


class Communicator:
    """Collectives over a set of ranks.

    Every member must make the same calls in the same order; where they do not, all of
    them raise the same `MismatchError`, nothing has been written, and the communicator
    can be used again. A call that makes no progress for `options.timeout_s` raises
    `CollectiveTimeoutError`, a dead peer `PeerFailedError`; after those two the
    communicator is broken. One thread at a time.

    Arrays may have any layout. `out` receives the result and may be the input itself.
    Results have the same bits on all ranks.
    """

    def __init__(self, group: Group, options: Options) -> None:
        """Use `group`; made by `world()`, `from_mpi()` and the methods below."""
        self._group = group
        self._caller = Caller(group, options)
        self.options = options

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        return self._group.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._group.size

    @property
    def topology(self) -> Topology:
        """Where the ranks are."""
        return self._group.topology

    @property
    def mpi(self) -> Any:
        """The mpi4py communicator that this was made from; None without MPI."""
        return self._group.mpi

    def with_options(self, **changes: Any) -> Communicator:
        """Return a communicator of the same ranks under changed options."""
        return Communicator(self._group, replace(self.options, **changes))

    def all_reduce(
        self,
        x: Any,
        op: str | ReduceOp = "sum",
        out: Any = None,
        algorithm: str | None = None,
    ) -> Any:
        """Combine `x` over all ranks, element by element.

        Args:
            x: array of the same shape and dtype on every rank.
            op: one of `OPS`. `mean` of integers gives float64.
            out: where the result goes; `out=x` works in place. A new array without it.
            algorithm: one of `ALGORITHMS["all_reduce"]`.

        Returns:
            The result, the same bits on every rank; `out` if that was given.
        """
        prepare = self._caller.all_reduce
        return self._submit("all_reduce", prepare, x, op, out, algorithm, out=out)

    def reduce(
        self,
        x: Any,
        op: str | ReduceOp = "sum",
        root: int = 0,
        out: Any = None,
        algorithm: str | None = None,
    ) -> Any:
        """Combine `x` over all ranks for `root` alone; the others get None.

        `out` is looked at only on the root.
        """
        prepare = self._caller.reduce
        out = out if self.rank == root else None
        return self._submit("reduce", prepare, x, op, root, out, algorithm, out=out)

    def broadcast(
        self, x: Any, root: int = 0, out: Any = None, algorithm: str | None = None
    ) -> Any:
        """Give every rank the root's array.

        On other ranks `x` tells shape and dtype, and its values do not matter; pass
        `out=x` to have it overwritten.
        """
        prepare = self._caller.broadcast
        return self._submit("broadcast", prepare, x, root, out, algorithm, out=out)

    def all_gather(
        self, x: Any, axis: int = 0, out: Any = None, algorithm: str | None = None
    ) -> Any:
        """Join the ranks' arrays along `axis`, in rank order.

        Lengths along `axis` may differ by rank; 0-d arrays are joined to shape (size,).
        """
        prepare = self._caller.all_gather
        return self._submit("all_gather", prepare, x, axis, out, algorithm, out=out)

    def barrier(self) -> None:
        """Return when every rank has called this."""
        self._submit("barrier", self._caller.barrier)

    def all_reduce_many(
        self,
        arrays: Sequence[Any],
        op: str | ReduceOp = "sum",
        out: Sequence[Any] | None = None,
        bytes_per_pack: int = 0,
        algorithm: str | None = None,
    ) -> list[Any]:
        """Combine each array of a list over all ranks; small ones travel together.

        Args:
            arrays: any shapes and dtypes, the same list on every rank.
            op: one of `OPS`.
            out: one target for each array; a target may be its input.
            bytes_per_pack: how much travels together at most; 0 chooses.
            algorithm: one of `ALGORITHMS["all_reduce"]`, for every pack.
        """
        prepare = self._caller.all_reduce_many
        given = None if out is None else list(out)
        result: list[Any] = self._submit(
            "all_reduce_many", prepare, arrays, op, given, bytes_per_pack, algorithm,
            out=given,
        )  # fmt: skip
        return result

    def broadcast_object(self, value: Any = None, root: int = 0) -> Any:
        """Give every rank the root's object, by pickle; for set-up, not for arrays."""
        prepare = self._caller.broadcast_object
        return self._submit("broadcast_object", prepare, value, root)

    def all_gather_object(self, value: Any) -> list[Any]:
        """Give every rank the list of all ranks' objects, by pickle."""
        prepare = self._caller.all_gather_object
        result: list[Any] = self._submit("all_gather_object", prepare, value)
        return result

    def choose(
        self, collective: str, nbytes: int, dtype: Any = np.float32, op: str = "sum"
    ) -> Choice:
        """Return the algorithm that a call would get, and the reason.

        Args:
            collective: a key of `ALGORITHMS`.
            nbytes: size of the caller's array.
            dtype: its dtype.
            op: for reductions; ignored otherwise.
        """
        return self._caller.choose(collective, nbytes, np.dtype(dtype), op)

    def close(self) -> None:
        """Wait until all ranks close, then give up everything; may be called twice."""
        if not self._group.closed:
            self._group.leave(LEAVE_S)
            self._group.close()

    def __enter__(self) -> Communicator:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, unless an error is on its way: the others may never get here."""
        if error is None:
            self.close()

    def __repr__(self) -> str:
        """Return rank, size and hosts."""
        hosts = len(self.topology.hosts)
        return f"<Communicator rank {self.rank} of {self.size} on {hosts} host(s)>"

    def _submit(
        self,
        collective: str,
        prepare: Callable[..., Call],
        *arguments: Any,
        out: Any = None,
    ) -> Any:
        """Take a call from its arguments to its result: the path of all calls."""
        group, timeout_s = self._group, self.options.timeout_s
        group.enter(collective, timeout_s)
        error: Exception | None = None
        try:
            try:
                call = prepare(*arguments)
                descriptor = call.descriptor
            except Exception as own:  # whatever it is, the others must hear of it
                error = own
                descriptor = Descriptor(collective, invalid=_in_short(own))
            if not agree(group, descriptor, self.options):
                raise mismatch(group, descriptor, timeout_s)
            if error is not None:
                raise error
            result = call.run()
        except TimedOut:
            raise silence(group, descriptor, timeout_s) from None
        except PeerLost as lost:
            raise death(group, descriptor, lost) from None
        finally:
            group.exit()
        return result if out is None else out


def _in_short(error: Exception) -> str:
    """Return our own errors' text, and the kind as well for anybody else's."""
    own = isinstance(error, CollectiveError)
    return str(error) if own else f"{type(error).__name__}: {error}"
