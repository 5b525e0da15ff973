"""Messages between pairs of ranks: send, receive, and exchange with neighbours.

Only the ranks that talk take part. A small header, which tells dtype, shape and size,
goes before every array; where it is not what the receiver wants, the receiver takes the
array off the wire, raises, and the pair can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
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
PIECE_BYTES = 1 << 30

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
    pairs, group = _checked(planner, pairs), planner.group
    incoming = [None if out is None else _wanted(peer, out) for peer, _, out in pairs]
    wanted = [want for want in incoming if want is not None]
    outgoing = [
        (peer, _apart(as_array(x), wanted)) for peer, x, _ in pairs if x is not None
    ]
    pending: list[Pending] = []
    group.stranded.append((pending, wanted, outgoing))
    for peer, array in outgoing:
        pending.append(group.messages.send(peer, _header(array), HEADER_TAG))
    for want in wanted:
        pending.append(group.messages.receive(want.peer, want.header, HEADER_TAG))
    _wait(planner, pending)
    for peer, array in outgoing:
        for piece in _cut(as_bytes(flat_source(array, array.dtype))):
            pending.append(group.messages.send(peer, piece, ARRAY_TAG))
    errors = []
    for want in wanted:
        size, digest, text = _read(want.header)
        room = as_bytes(want.work)
        if digest != _digest(want.target):
            errors.append(
                f"rank {want.peer} sent {text}; wanted {_describe(want.target)}"
            )
            room = np.empty(size, np.uint8)
        for piece in _cut(room):
            pending.append(group.messages.receive(want.peer, piece, ARRAY_TAG))
    _wait(planner, pending)
    group.stranded.pop()
    if errors:
        raise MismatchError(f"rank {group.rank}: " + "; ".join(errors))
    for want in wanted:
        if not want.direct:
            want.target[...] = want.work.reshape(want.target.shape)
    return [None if want is None else want.target for want in incoming]


def _apart(array: Array, wanted: Sequence[_Incoming]) -> Array:
    """Return what is sent, copied where something is received into its memory."""
    overlaps = any(np.may_share_memory(array, want.target) for want in wanted)
    return array.copy() if overlaps else array


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
    return f"{array.dtype} {array.shape}"


def _digest(array: Array) -> bytes:
    return blake2b(_describe(array).encode(), digest_size=16).digest()


def _header(array: Array) -> Array:
    """Return size, digest of dtype and shape, and as much of these as there is room."""
    text = _describe(array).encode(errors="replace")[: HEADER_BYTES - 24]
    size = array.nbytes.to_bytes(8, "little")
    data = (size + _digest(array) + text).ljust(HEADER_BYTES, b"\0")
    return np.frombuffer(data, np.uint8)


def _read(header: Array) -> tuple[int, bytes, str]:
    data = header.tobytes()
    text = data[24:].rstrip(b"\0").decode(errors="replace")
    return int.from_bytes(data[:8], "little"), data[8:24], text


def _cut(data: Array) -> list[Array]:
    """Return pieces that any MPI can count, the same whatever the options."""
    return [data[low:high] for low, high in segments(0, data.size, PIECE_BYTES)]


def _wait(planner: Planner, pending: list[Pending]) -> None:
    for one in pending:
        planner.group.wait(one.done, planner.options.timeout_s)
    pending.clear()
