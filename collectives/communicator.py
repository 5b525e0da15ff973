"""The facade: every collective, on one set of ranks, under one set of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from collectives import exits, express, forks, recorder, registered, tracefile
from collectives.algorithms import REDUCING, TABLE
from collectives.among import among
from collectives.background import Background
from collectives.calls import Call, gpus, groups, meeting, points, probing, warming
from collectives.calls.pairs import Given, prepare
from collectives.calls.placing import (
    ONE_SIDED,
    explain_way,
    first_on_device,
    placed,
)
from collectives.calls.probing import Mode
from collectives.calls.staging import Stage
from collectives.calls.warming import Opened
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.gpu import streams
from collectives.group import Group
from collectives.handles import Engine, Handle
from collectives.joining import Join
from collectives.kernels import Op, kernel_for
from collectives.leaving import leave
from collectives.memory import Memory
from collectives.options import Options
from collectives.outsider import Outsider
from collectives.plans import Planner
from collectives.selection import Choice
from collectives.submission import submit
from collectives.topology import Topology
from collectives.verdicts import death, silence
from collectives.waiting import PeerLost, TimedOut

R = TypeVar("R")


class Communicator(Background, Memory):
    """Collectives over a set of ranks.

    Every member must make the same calls in the same order; where they do not, all of
    them raise the same `MismatchError`, nothing has been written, and the communicator
    can be used again. A call that makes no progress for `options.timeout_s` raises
    `CollectiveTimeoutError`, a dead peer `PeerFailedError`; after those two the
    communicator is broken. One thread at a time.

    Arrays may have any layout. `out` receives the result and may be the input itself.
    Results have the same bits on all ranks.
    """

    def __init__(self, group: Group, options: Options, owner: bool = True) -> None:
        """Use `group`; made by `world()`, `from_mpi()` and the methods below."""
        self._group = group
        self._planner = Planner(group, options)
        self._owner = owner
        self._background: Communicator | None = None
        self.options = options
        if options.trace:
            tracefile.here.write_to(options.trace)

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

    @property
    def shared_bytes(self) -> int:
        """The shared memory that this process has carved out, in bytes.

        Boards, windows, common results and registered arrays, of all communicators
        that go back to the same start.
        """
        arena = self._group.arena
        return arena.used_bytes if arena is not None else 0

    def with_options(self, **changes: Any) -> Communicator:
        """Return a communicator of the same ranks under changed options."""
        return Communicator(self._group, self.options.changed(**changes), owner=False)

    def choose(
        self,
        collective: str,
        nbytes: int,
        dtype: Any = np.float32,
        op: str = "sum",
        device: str = "cpu",
    ) -> Choice:
        """Return the algorithm that a call would get, and why: a `Choice`.

        With the time that it is thought to take, and those of all that could make the
        call: of algorithms that race what they took lately, else prices (costs.py).

        Args:
            collective: a key of `ALGORITHMS`.
            nbytes: size of the caller's array.
            dtype: its dtype.
            op: for reductions; ignored otherwise.
            device: `cuda` for an array on a GPU. What the ranks have there is known
                once a call with such an array has been made.
        """
        if device not in ("cpu", "cuda"):
            raise InvalidArgumentError(f"device is {device!r}; wanted cpu or cuda")
        if not isinstance(collective, str) or collective not in TABLE:
            raise InvalidArgumentError(
                f"unknown collective {collective!r}; known: {' '.join(TABLE)}"
            )
        if not isinstance(nbytes, (int, np.integer)) or nbytes < 0:
            raise InvalidArgumentError(f"nbytes is {nbytes!r}; wanted 0 bytes or more")
        dtype = np.dtype(dtype)
        kernel, travelling = None, int(nbytes)
        if collective in REDUCING:
            kernel = kernel_for(op, dtype)
            travelling = nbytes // dtype.itemsize * kernel.work_dtype.itemsize
        choice = self._planner.explain(collective, travelling, kernel)
        if device == "cpu":
            return choice
        return explain_way(self._planner, collective, kernel, choice)

    def close(self) -> None:
        """Wait until all ranks close, then give up everything; may be called twice.

        What `with_options` returns is a view: it closes nothing. A broken communicator
        cannot be closed; it ends the job when the interpreter ends.

        Raises:
            CollectiveTimeoutError: not all ranks closed before the deadline.
            PeerFailedError: a rank died, or waits for a call that this one never makes.
        """
        group = self._group
        if group.closed or group.broken or not self._owner:
            return
        if group.engine is not None:
            group.engine.stop()
        try:
            leave(self._group, self.options.timeout_s)
        except TimedOut:
            closing, timeout_s = Descriptor("close"), self.options.timeout_s
            raise silence(self._group, closing, timeout_s) from None
        except PeerLost as lost:
            raise death(self._group, Descriptor("close"), lost) from None
        if group.twin is not None:
            group.twin.close()
        group.close()
        exits.forget(group)

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

    def dump_trace(self, folder: str | Path) -> Path:
        """Write this process's latest calls, on all communicators, into a folder.

        `ringfold trace FOLDER` compares the files of the ranks. Not collective.

        Raises:
            OSError: the folder cannot be made or written to.
        """
        return tracefile.here.dump(folder)

    def __repr__(self) -> str:
        """Return rank, size and hosts."""
        hosts = len(self.topology.hosts)
        return f"<Communicator rank {self.rank} of {self.size} on {hosts} host(s)>"

    def group(self, ranks: Sequence[int], members_only: bool = False) -> Communicator:
        """Return the communicator of some of the ranks, in that order.

        Every rank of this one calls it with the same list. On ranks that are not in the
        list every use of what comes back is an error.

        With `members_only` the ranks in the list call it, and nobody else: the others
        go on with something else. A rank that waits for another one's list in vain
        raises `CollectiveTimeoutError`, as in a message.
        """
        if members_only:
            return Communicator(self._meet(ranks), self.options)
        return self._wrap(self._submit(groups.group, ranks), f"group {ranks}")

    def split(self, color: int | None, key: int = 0) -> Communicator:
        """Return the communicator of the ranks that give the same color.

        They are ordered by `key`, then by rank. Color None: this rank is in none.
        """
        return self._wrap(self._submit(groups.split, color, key), "split by color None")

    def join(self, divisor: str = "active") -> Join:
        """Return a context in which ranks may make different numbers of calls.

        ::

            with comm.join():
                for batch in batches:              # more on some ranks than on others
                    gradient = comm.all_reduce(step(batch), "mean")

        A rank that comes to the end of the block waits there and takes part in every
        call that others still make, with something that changes nothing; all leave the
        block together. A call in which such a rank would be the root, a group made
        inside, and `check="off"` are errors. Every call costs some microseconds more.

        Args:
            divisor: whether `mean` divides by the ranks that are still `active`, or by
                all of the `world`.
        """
        return Join(self._submit, self._group, self.options, divisor)

    def fewest_steps(self, steps: int) -> int:
        """Return the smallest number of steps that any rank has to make."""
        return int(self.all_reduce(np.int64(steps), "min"))

    def warm_up(self, device: str = "cpu") -> Opened:
        """Open now what first calls would open, so that none pays for it; collective.

        The window in which the ranks of a host work together takes milliseconds. With
        `device="cuda"` it is also what arrays on GPUs go by first. Where that is NCCL
        it takes from tenths of a second to a minute. The GPU is the one that is current
        on this rank: make it so before, with `cupy.cuda.Device(n).use()`. What cannot
        be had is no error.

        Returns:
            What there is now, or why it cannot be had.

        Raises:
            CollectiveTimeoutError: NCCL did not come up before the deadline.
        """
        if device == "cuda":
            self._open_gpus(None)
        opened: Opened = self._submit(warming.warm_up, device)
        return opened

    def probe(self) -> Mode | None:
        """Measure how memory behaves between the ranks of a host, now; collective.

        Takes a millisecond or two. Where two ranks run, and so whether they share a
        cache, can change at any moment. None where the ranks do not share memory.
        """
        mode: Mode | None = self._submit(probing.probe)
        return mode

    def _wrap(self, group: Group | None, what: str) -> Communicator:
        if group is None:
            return cast(Communicator, Outsider(self.rank, what))
        return Communicator(group, self.options)

    def _is(self, root: int) -> bool:
        return self._group.rank == root

    def _submit(
        self,
        prepare: Callable[..., Call],
        *arguments: Any,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        array = first_on_device(arguments)
        if array is not None and prepare.__name__ not in ONE_SIDED:
            self._open_gpus(array)
        if array is not None or stream is not None:
            prepare = placed(prepare, stream)
        result = submit(self._planner, prepare, *arguments)
        return result if out is None or out is registered.SHARED else out

    def _open_gpus(self, array: Any) -> None:
        """Let the ranks tell each other what they have for arrays on GPUs, once."""
        group = self._group
        if group.gpus is None:
            group.gpus = gpus.without_asking(group)
        if group.gpus is None:
            submit(self._planner, gpus.open_gpus, array)

    def _quickly(self, x: Any, op: Op, out: Any, algorithm: str | None) -> Any:
        return express.all_reduce(self._planner, x, op, out, algorithm)

    def _exchange(self, doing: str, pairs: Sequence[Given]) -> list[Any]:
        planner, stage = self._planner, Stage(self._planner)
        ready = prepare(planner, stage.pairs(pairs))
        peers = {pair.peer for pair in ready}
        got = among(planner, doing, peers, lambda: points.exchange(planner, ready))
        returned: list[Any] = stage.delivered(got)
        return returned

    def _meet(self, ranks: Sequence[int]) -> Group:
        planner, members = self._planner, meeting.own_members(self._planner, ranks)
        others = set(members) - {self.rank}
        return among(
            planner, "group", others, lambda: meeting.meet(planner, members, others)
        )

    def _start(self, name: str, call: Callable[[Communicator], R]) -> Handle[R]:
        """Make a call on the group for calls that go on in the background."""
        forks.refuse()
        group = self._group
        if group.twin is None:
            group.twin = self._submit(groups.twin)
            group.engine = Engine()
            exits.finish_at_exit(group.engine)
        if self._background is None:
            self._background = Communicator(group.twin, self.options, owner=False)
        background, site = self._background, recorder.call_site()
        at = streams.here()

        def make() -> R:
            background._group.site = site
            with at():
                return call(background)

        if group.threads and group.engine is not None:
            return group.engine.submit(name, make)
        handle: Handle[R] = Handle(name)
        handle.run(make)
        return handle
