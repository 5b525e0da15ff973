"""From nothing to a communicator: load the MPI, look around, make the group.

All that is collective and blocking happens here, once, under a deadline.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from collectives import exits, forks
from collectives._version import __version__
from collectives.algorithms.small import all_gather_bytes
from collectives.backing import LocalRanks, shared_arena
from collectives.board import Board, board_bytes
from collectives.communicator import Communicator
from collectives.cycles import Waits
from collectives.deriving import lowest_among
from collectives.ending import say
from collectives.errors import InvalidArgumentError, LaunchError, MismatchError
from collectives.group import Group
from collectives.launcher import claim_rank, disagreement, read_launch, refusal
from collectives.options import Options
from collectives.recorder import Members, here, key_of
from collectives.tables import Table, read, shipped
from collectives.topology import Topology, discover, mpi_name, single_host
from collectives.transport.loopback import alone
from collectives.transport.mpi import MPIMessages, another
from collectives.waiting import Liveness
from collectives.watchdog import Guarded

VERSION_TAGS = 0x6830  # one for each round of agreeing, some 20 at most

_world: Communicator | None = None
_roots: Counter[tuple[int, ...]] = Counter()


def world(options: Options | None = None) -> Communicator:
    """Return the communicator of all ranks; made at the first call, by all ranks.

    Without a launcher it has one rank, with or without an MPI installed.

    Args:
        options: instead of those read from the RINGFOLD_* variables.

    Raises:
        LaunchError: the launcher started several ranks and the MPI sees one.
        MismatchError: the ranks run different versions or options.
    """
    global _world
    if not isinstance(options, Options | None):
        raise InvalidArgumentError(
            f"options is {options!r}; wanted collectives.Options"
        )
    if _world is None:
        _world = _make_world(options or _options())
    if options is None:
        return _world
    return Communicator(_world._group, options, owner=False)


def _options() -> Options:
    """Return the options of the environment; an error in them ends the whole job.

    Variables may be others on other hosts, whose ranks would wait for this one.
    """
    try:
        return Options.from_environment()
    except InvalidArgumentError:
        several = read_launch().at_least > 1
        if several and os.environ.get("RINGFOLD_ABORT", "1") != "0":
            load_mpi(Options().timeout_s)  # without it there is no job to end
            exits.install()
        raise


def from_mpi(mpi_comm: Any, options: Options | None = None) -> Communicator:
    """Return a communicator of the ranks of an mpi4py communicator; collective over it.

    Ringfold works on a duplicate: its messages and the caller's never meet. `close()`
    it when done; MPI libraries run out of communicators after some thousand.
    """
    if not hasattr(mpi_comm, "Is_inter") or not mpi_comm:  # COMM_NULL is false
        raise InvalidArgumentError(
            f"mpi_comm is {mpi_comm!r}; wanted an mpi4py communicator with this rank"
        )
    if mpi_comm.Is_inter():
        raise InvalidArgumentError("an intercommunicator; wanted an intracommunicator")
    return _over_mpi(mpi_comm, options or Options.from_environment())


def _make_world(options: Options) -> Communicator:
    facts = read_launch()
    mpi = load_mpi(options.timeout_s)
    if mpi is not None and mpi.COMM_WORLD.Get_size() > 1:
        return _over_mpi(mpi.COMM_WORLD, options)
    problem = disagreement(
        facts, None if mpi is None else 1, "" if mpi is None else mpi_name()
    )
    if problem:
        raise LaunchError(problem)
    if mpi is not None:
        return _over_mpi(mpi.COMM_WORLD, options)
    return Communicator(Group(alone(), single_host(0, 1)), options)


def load_mpi(timeout_s: float) -> Any:
    """Import mpi4py's MPI and initialize it; return None where there is no MPI.

    Raises:
        LaunchError: the MPI library would end this process instead of raising.
    """
    if "mpi4py.MPI" in sys.modules:
        mpi = sys.modules["mpi4py.MPI"]
    else:
        try:
            import mpi4py

            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
            from mpi4py import MPI as mpi
        except (ImportError, RuntimeError):
            return None
    if not mpi.Is_initialized():
        problem = refusal(read_launch(), mpi_name(), mpi.Get_library_version())
        if problem:
            raise LaunchError(problem)
        with _init_deadline(timeout_s):
            mpi.Init_thread(mpi.THREAD_MULTIPLE)
    return mpi


@contextmanager
def _init_deadline(timeout_s: float) -> Iterator[None]:
    """Dump the stacks and exit when `MPI_Init`, which holds the GIL, never returns."""
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class _LocalMPI:
    """The ranks of this host during start-up; see `arena.LocalRanks`."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()

    def broadcast(self, value: Any) -> Any:
        return self._comm.bcast(value)

    def all(self, fine: bool) -> bool:
        return all(self._comm.allgather(fine))


def _over_mpi(caller: Any, options: Options) -> Communicator:
    """Make a communicator over a duplicate of the caller's."""
    forks.refuse()
    rank = caller.Get_rank()
    with Guarded(options.timeout_s, lambda: f"rank {rank} is stuck in start-up"):
        private = another(rank, caller.Dup)
        local = another(rank, _those_on_this_host, private)
        topology = discover(private, local)
        job, job_size = _members(private)
        known = _tables(private, topology, options)
        number = job.ranks[topology.rank]
        pids = dict(
            zip(topology.local_ranks, local.allgather(os.getpid()), strict=True)
        )
        arena, how = shared_arena(_LocalMPI(local))
        board, waits = None, None
        if arena is None:
            if topology.local_rank == 0:
                say(f"ringfold: no memory is shared on this host ({how})")
        else:
            nbytes = board_bytes(topology.local_size)
            offset = local.bcast(arena.carve(nbytes) if local.rank == 0 else None)
            members = topology.local_ranks
            memory = arena.view(offset, nbytes)
            board = Board(memory, members, topology.rank, place=offset, number=number)
            numbers = [job.ranks[rank] for rank in members]
            waits = Waits(arena, offset, numbers, number)
        local.Free()
    group = Group(
        MPIMessages(private),
        topology,
        board=board,
        arena=arena,
        liveness=Liveness({r: pid for r, pid in pids.items() if r != topology.rank}),
        mpi=caller,
        native=private,
        members=job,
        waits=waits,
    )
    group.know(known)
    claim_rank()
    here.rank, here.size = number, job_size
    _agree_on_versions(group, options)
    if group.size > 1 and options.abort:
        exits.leave_at_exit(group)
    return Communicator(group, options)


def _tables(comm: Any, topology: Topology, options: Options) -> tuple[Table, ...]:
    """Let rank 0 read what was tuned, and tell the others; collective.

    Raises:
        InvalidArgumentError: on all ranks, because rank 0 cannot read the file.
    """
    text, problem, path = "", "", options.table
    if topology.rank == 0:
        assert topology.mpi is not None, "ranks of an MPI"
        try:
            text = Path(path).read_text() if path else shipped(topology.mpi.vendor)
        except (OSError, ValueError) as error:
            problem = f"rank 0 cannot read the table {path!r}: {error}"
    text, problem = comm.bcast((text, problem))
    if problem:
        raise InvalidArgumentError(problem)
    return read(text, repr(path) if path else "a shipped table") if text else ()


def _those_on_this_host(comm: Any) -> Any:
    """Return the mpi4py communicator of the ranks that share memory with this one."""
    from mpi4py import MPI

    return comm.Split_type(MPI.COMM_TYPE_SHARED)


def _members(comm: Any) -> tuple[Members, int]:
    """Return who the ranks of a communicator are in the job, and the job's size."""
    from mpi4py import MPI

    everybody, some = MPI.COMM_WORLD.Get_group(), comm.Get_group()
    ranks = tuple(some.Translate_ranks(list(range(some.Get_size())), everybody))
    size = everybody.Get_size()
    everybody.Free()
    some.Free()
    if MPI.UNDEFINED in ranks:  # of a job that was spawned by another
        ranks, size = tuple(range(len(ranks))), len(ranks)
    _roots[ranks] += 1
    return Members(ranks, key_of(ranks, _roots[ranks])), size


def _agree_on_versions(group: Group, options: Options) -> None:
    """Raise everywhere if anything that must be the same is not.

    Where all is well, that shows in numbers of rounds that grow with log(ranks); only
    for an error does every rank hear what every other one has.
    """
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    mine = {"ringfold": __version__, "numpy": np.__version__, **given}
    text = repr(sorted((name, str(value)) for name, value in mine.items()))
    word = int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big")
    ranks, timeout_s = range(group.size), options.timeout_s
    lowest, highest = (
        sign * lowest_among(group, ranks, sign * word, VERSION_TAGS, timeout_s)
        for sign in (1, -1)
    )
    if lowest == highest:
        return
    everyone = [
        pickle.loads(data)
        for data in all_gather_bytes(group, pickle.dumps(mine), options.timeout_s)
    ]
    for name in mine:
        ranks_of: dict[str, list[int]] = {}
        for rank, theirs in enumerate(everyone):
            ranks_of.setdefault(str(theirs.get(name, "not there")), []).append(rank)
        if len(ranks_of) > 1:
            shown = "; ".join(f"{v} on ranks {r}" for v, r in ranks_of.items())
            raise MismatchError(f"the ranks run with different {name}: {shown}")


_: type[LocalRanks] = _LocalMPI
