"""Single copy: read the peers' own memory, without any memory in between.

`process_vm_readv` copies from another process of the same host and user, where the
system allows it. The ranks tell each other where their arrays lie, and each reads what
it needs, in pieces that stay in the cache. Before and after there is a hand-over: when
a call returns, nobody reads the caller's memory any more.

As in shared.py, reductions add in the order of ranks. Fewer stores than through a
window, and data that the caches of two processors would have to pass to and fro is read
once; but every piece costs a system call, which pays for large arrays only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from errno import EFAULT
from functools import cache

import numpy as np

from collectives.algorithms.ordered import combine_in_order
from collectives.algorithms.stepwise import Task
from collectives.board import PROCESS, SOURCE, TARGET, Board
from collectives.kernels import Array
from collectives.partition import Bounds, even_bounds, segments
from collectives.waiting import PeerLost

PIECE_BYTES = 512 << 10
MOST_BYTES = 1 << 30  # one call of the system reads a little less than 2 GiB


class _Vector(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@cache
def _readv() -> Callable[..., int]:
    """Return the system's function.

    Raises:
        AttributeError: it has none.
    """
    function = ctypes.CDLL(None, use_errno=True).process_vm_readv
    pointer, number = ctypes.POINTER(_Vector), ctypes.c_ulong
    function.argtypes = [ctypes.c_int, pointer, number, pointer, number, number]
    function.restype = ctypes.c_ssize_t
    return function


def read_memory(process: int, address: int, out: Array) -> None:
    """Overwrite a flat array by what another process has at an address.

    Raises:
        OSError: the process has ended, or this is not permitted.
        AttributeError: this system cannot do it.
    """
    done, read = 0, _readv()
    while done < out.nbytes:
        length = min(out.nbytes - done, MOST_BYTES)
        here = _Vector(out.ctypes.data + done, length)
        there = _Vector(address + done, length)
        count = read(process, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if count <= 0:
            error = ctypes.get_errno()
            raise OSError(error, f"reading process {process}: {os.strerror(error)}")
        done += count


def _announce(task: Task) -> None:
    """Tell the others where this rank's arrays lie."""
    board = task.group.board
    assert board is not None, "the addresses stand on the board"
    board.write(SOURCE, task.source.ctypes.data)
    board.write(TARGET, task.work.ctypes.data)


class _Peers:
    """Where the ranks' arrays lie, after a hand-over since they were announced."""

    def __init__(self, task: Task) -> None:
        group, board = task.group, task.group.board
        assert board is not None, "the addresses stand on the board"
        self.task, self.rank, self.size = task, group.rank, group.size
        self._processes = board.read(PROCESS)
        self.sources, self.targets = board.read(SOURCE), board.read(TARGET)

    def hand_over(self) -> None:
        self.task.group.hand_over(self.task.timeout_s)

    def read(self, rank: int, address: int, offset: int, out: Array) -> None:
        """Read a peer's elements from `offset` on."""
        try:
            read_memory(self._processes[rank], address + offset * out.itemsize, out)
        except ProcessLookupError:
            raise PeerLost(rank, "died") from None
        except OSError as error:
            if error.errno != EFAULT:
                raise
            raise PeerLost(rank, "has given up this call") from None

    def fetch(self, addresses: list[int], bounds: Bounds) -> None:
        """Fill `work` with the peers' blocks, the next one's first."""
        for step in range(1, self.size):
            block = (self.rank + step) % self.size
            low, high = bounds[block], bounds[block + 1]
            self.read(block, addresses[block], low, self.task.work[low:high])

    def combine(self, low: int, high: int, target: Array) -> None:
        """Put the sum of everybody's elements from `low` to `high` into `target`."""
        task, itemsize = self.task, self.task.source.itemsize
        kernel, length = task.kernel, PIECE_BYTES // itemsize
        wide = kernel is not None and kernel.work_dtype != task.source.dtype
        room = task.group.scratch(3 * PIECE_BYTES + (8 * length if wide else 0))
        pieces = [
            room[place : place + length * itemsize].view(task.source.dtype)
            for place in range(0, 3 * PIECE_BYTES, PIECE_BYTES)
        ]
        wide_room = room[3 * PIECE_BYTES :].view(np.float32)
        own_is_last = self.rank < 2 or task.source is not task.work

        def parts(start: int, stop: int) -> Iterator[Array]:
            for rank in range(self.size):
                if rank == self.rank:
                    yield task.source[start:stop]
                else:
                    piece = pieces[rank & 1][: stop - start]
                    self.read(rank, self.sources[rank], start, piece)
                    yield piece

        for start, stop in segments(low, high, length):
            goal = target[start - low : stop - low]
            total = goal if own_is_last else pieces[2][: stop - start]
            combine_in_order(task, parts(start, stop), total, wide_room)
            if total is not goal:
                goal[...] = total


def _peers(task: Task) -> _Peers:
    """Announce where this rank's arrays lie, and learn where the others' do."""
    _announce(task)
    task.group.hand_over(task.timeout_s)
    return _Peers(task)


def start_all_reduce(task: Task) -> Callable[[], None]:
    """Begin before the ranks agree; return the rest."""
    _announce(task)
    return lambda: _reduce(task, _Peers(task), wanted=True)


def all_reduce(task: Task) -> None:
    """Add up the own block, then read the others' sums."""
    _reduce(task, _peers(task), wanted=True)


def reduce(task: Task) -> None:
    """Add up the own block; the root reads the others' sums."""
    _reduce(task, _peers(task), wanted=task.group.rank == task.root)


def _reduce(task: Task, peers: _Peers, wanted: bool) -> None:
    bounds = even_bounds(task.source.size, peers.size)
    low, high = bounds[peers.rank], bounds[peers.rank + 1]
    with np.errstate(all="ignore"):
        peers.combine(low, high, task.work[low:high])
    peers.hand_over()
    if wanted:
        peers.fetch(peers.targets, bounds)
    peers.hand_over()


def reduce_scatter(task: Task) -> None:
    """Add up the own block."""
    peers = _peers(task)
    low, high = task.bounds[peers.rank], task.bounds[peers.rank + 1]
    with np.errstate(all="ignore"):
        peers.combine(low, high, task.work[low:high])
    peers.hand_over()


def broadcast(task: Task) -> None:
    """Read the root's array."""
    peers = _peers(task)
    if peers.rank != task.root:
        peers.read(task.root, peers.sources[task.root], 0, task.work)
    elif task.source is not task.work:
        task.work[:] = task.source
    peers.hand_over()


def all_gather(task: Task) -> None:
    """Read every peer's block from where it is in that one's `work`."""
    peers = _peers(task)
    peers.fetch(peers.targets, task.bounds)
    peers.hand_over()


def probe(board: Board, own: Array) -> bool:
    """Tell whether the memory of every peer can be read; see opening.py.

    `own` holds one number, which every rank has announced on the board, with where it
    is. A peer's process may have another number in this rank's container, or be none.
    """
    rows = zip(board.read(PROCESS), board.read(SOURCE), board.read(TARGET), strict=True)
    seen = np.empty_like(own)
    try:
        for process, address, number in rows:
            read_memory(process, address, seen)
            if seen[0] != number:
                return False
    except (OSError, AttributeError):
        return False
    return True
