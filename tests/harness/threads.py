"""Whole communicators without MPI: every rank a thread of this process.

    results = run_ranks(3, lambda comm: comm.all_reduce(comm.rank))

`WORLDS` says how the ranks find out that all make the same call: on the board of one
host, by messages where no memory is shared, or both, on several hosts.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from collectives import Communicator, Options, Topology
from collectives.arena import Arena, private_arena
from collectives.board import Board, board_bytes
from collectives.group import Group
from collectives.transport import Messages
from collectives.transport.loopback import run_threads

T = TypeVar("T")

# World -> host of each rank; whether its hosts have memory that their ranks share.
WORLDS: dict[str, tuple[Callable[[int], int], bool]] = {
    "one board": (lambda rank: 0, True),
    "no board": (lambda rank: 0, False),
    "two hosts": (lambda rank: rank % 2, True),
}

HEAP_BYTES = 4 << 20  # of address space; what is not touched costs nothing
TIMEOUT_S = 20.0  # of a call whose peer has failed a test


def run_ranks(
    size: int,
    body: Callable[[Communicator], T],
    world: str = "one board",
    transport: Callable[[Any], Messages] = lambda messages: messages,
    **options: Any,
) -> list[T]:
    """Run `body(comm)` on `size` ranks; return the results by rank.

    Args:
        size: the number of ranks.
        body: what each rank does.
        world: one of `WORLDS`.
        transport: makes of a rank's loopback what its messages go over.
        options: fields of `collectives.Options`.

    Raises:
        BaseException: what the lowest failing rank raised.
    """
    groups = _group_maker(size, world)
    given = Options(**{"timeout_s": TIMEOUT_S, **options})

    def one_rank(messages: Any) -> T:
        return body(Communicator(groups(transport(messages)), given))

    with _frequent_switches():
        return run_threads(size, one_rank)


def outcome(call: Callable[[], T]) -> T | Exception:
    """Return a call's result, or the exception that it raised."""
    try:
        return call()
    except Exception as error:
        return error


def _group_maker(size: int, world: str) -> Callable[[Messages], Group]:
    """Return what makes a rank's group; the boards' memory is made here, once."""
    place, shares = WORLDS[world]
    host_of = tuple(place(rank) for rank in range(size))
    hosts = tuple(f"host{number}" for number in range(max(host_of) + 1))
    shared: dict[int, tuple[list[Arena], int, list[int]]] = {}
    for host in range(len(hosts) if shares else 0):
        members = [rank for rank in range(size) if host_of[rank] == host]
        arenas = private_arena(len(members), HEAP_BYTES)
        shared[host] = arenas, arenas[0].carve(board_bytes(len(members))), members

    def group(messages: Messages) -> Group:
        rank = messages.rank
        # One core for all of them: waiting threads yield and do not spin.
        topology = Topology(rank, hosts, host_of, cores=1)
        if not shares:
            return Group(messages, topology)
        arenas, place, members = shared[host_of[rank]]
        arena = arenas[members.index(rank)]
        lines = arena.view(place, board_bytes(len(members)))
        board = Board(lines, members, rank)
        return Group(messages, topology, board=board, arena=arena)

    return group


@contextmanager
def _frequent_switches() -> Iterator[None]:
    """Let waiting threads hand the interpreter over sooner than after 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
