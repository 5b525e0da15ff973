"""Messages between pairs of ranks: send, receive, and exchange with neighbours.

Only the ranks that talk take part. A small header, which tells dtype, shape and size,
goes before every array; where it is not what the receiver wants, the receiver takes the
array off the wire, raises, and the pair can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from collectives.buffers import as_array, as_bytes, check_out, flat_source, flat_work
from collectives.errors import InvalidArgumentError, MismatchError
from collectives.kernels import Array
from collectives.partition import segments
from collectives.plans import Planner
from collectives.transport import Pending

HEADER_TAG, ARRAY_TAG = 0x6000, 0x6001
HEADER_BYTES = 128

Pair = tuple[int, Any, Any]
"""`(peer, what to send or None, where to receive or None)`."""


class _Incoming(NamedTuple):
    peer: int
    target: Array
    work: Array
    direct: bool
    header: Array


def exchange(planner: Planner, pairs: Sequence[Pair]) -> list[Array | None]:
    """Send to and receive from several peers at once, without any order among them.

    Returns:
        What was received, per pair; None where nothing was wanted.

    Raises:
        MismatchError: a peer sent another dtype or shape than this rank wants; all the
            others have been received.
    """
    pairs = _checked(planner, pairs)
    outgoing = [(peer, as_array(x)) for peer, x, _ in pairs if x is not None]
    incoming = [None if out is None else _wanted(peer, out) for peer, _, out in pairs]
    pending: list[Pending] = []
    for peer, array in outgoing:
        pending.append(_send(planner, peer, _header(array), HEADER_TAG))
    for want in incoming:
        if want is not None:
            pending.append(
                planner.group.messages.receive(want.peer, want.header, HEADER_TAG)
            )
    _wait(planner, pending)
    for peer, array in outgoing:
        data = as_bytes(flat_source(array, array.dtype))
        pending += [
            _send(planner, peer, piece, ARRAY_TAG) for piece in _cut(planner, data)
        ]
    errors = []
    for want in incoming:
        if want is None:
            continue
        size, text = _read(want.header)
        room = as_bytes(want.work)
        if text != _describe(want.target):
            errors.append(
                f"rank {want.peer} sent {text}; wanted {_describe(want.target)}"
            )
            room = np.empty(size, np.uint8)
        for piece in _cut(planner, room):
            pending.append(planner.group.messages.receive(want.peer, piece, ARRAY_TAG))
    _wait(planner, pending)
    if errors:
        raise MismatchError(f"rank {planner.group.rank}: " + "; ".join(errors))
    for want in incoming:
        if want is not None and not want.direct:
            want.target[...] = want.work.reshape(want.target.shape)
    return [None if want is None else want.target for want in incoming]


def _checked(planner: Planner, pairs: Sequence[Pair]) -> list[Pair]:
    checked = [(planner.rank(peer, "peer"), x, out) for peer, x, out in pairs]
    for peer, _, _ in checked:
        if peer == planner.group.rank:
            raise InvalidArgumentError(f"peer is {peer}, which is this rank itself")
    return checked


def _wanted(peer: int, out: Any) -> _Incoming:
    array = as_array(out)
    target = check_out(out, array.shape, array.dtype)
    work, direct = flat_work(target, target.dtype)
    return _Incoming(peer, target, work, direct, np.empty(HEADER_BYTES, np.uint8))


def _describe(array: Array) -> str:
    return f"{array.dtype} {array.shape}"[: HEADER_BYTES - 8]


def _header(array: Array) -> Array:
    header = np.zeros(HEADER_BYTES, np.uint8)
    header[:8].view(np.int64)[0] = array.nbytes
    text = _describe(array).encode()
    header[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
    return header


def _read(header: Array) -> tuple[int, str]:
    size = int(header[:8].view(np.int64)[0])
    return size, header[8:].tobytes().rstrip(b"\0").decode()


def _cut(planner: Planner, data: Array) -> list[Array]:
    limit = planner.options.mpi_limit_bytes
    return [data[low:high] for low, high in segments(0, data.size, limit)]


def _send(planner: Planner, peer: int, data: Array, tag: int) -> Pending:
    return planner.group.messages.send(peer, data, tag)


def _wait(planner: Planner, pending: list[Pending]) -> None:
    for one in pending:
        planner.group.wait(one.done, planner.options.timeout_s)
    pending.clear()
