"""Messages between pairs of ranks: send, receive, and exchange with neighbours.

Only the ranks that talk take part. A small header, which tells tag, dtype, shape and
size, goes before every array; where it is not what the receiver wants, the receiver
takes the array off the wire, raises, and the pair can go on.

The caller's tags are in the headers and not in MPI's tags, so that they may be any word
and none that is wrong waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from collectives.buffers import as_bytes, flat_source
from collectives.errors import MismatchError
from collectives.kernels import Array
from collectives.partition import segments
from collectives.plans import Planner
from collectives.transport import Pending

HEADER_TAG, ARRAY_TAG = 0x6000, 0x6001
HEADER_BYTES, DIGEST_BYTES = 128, 16
PIECE_BYTES = 1 << 30

Tag = int | str | None


class Room(NamedTuple):
    """Where an array is received."""

    target: Array
    work: Array
    """Flat and contiguous; the target itself, if that is `direct`."""
    direct: bool


class Pair(NamedTuple):
    """What is sent to a peer, and what is received from it, under one tag."""

    peer: int
    tag: Tag
    array: Array | None
    room: Room | None


class Header(NamedTuple):
    """What goes before an array."""

    nbytes: int
    array: bytes
    """Digest of dtype and shape."""
    tag: bytes
    """Digest of the tag."""
    text: str
    """As much of all this, in words, as there is room for."""

    @classmethod
    def of(cls, array: Array, tag: Tag) -> Header:
        """Describe what is sent, or wanted."""
        what = f"{array.dtype} {array.shape}"
        text = what if tag is None else f"{what} with tag {tag!r}"
        return cls(array.nbytes, _digest(what), _digest(repr(tag)), text)

    def pack(self) -> Array:
        """Return the bytes that travel."""
        fixed = self.nbytes.to_bytes(8, "little") + self.array + self.tag
        text = self.text.encode(errors="replace")[: HEADER_BYTES - len(fixed)]
        return np.frombuffer((fixed + text).ljust(HEADER_BYTES, b"\0"), np.uint8)

    @classmethod
    def read(cls, packed: Array) -> Header:
        """Return what was packed."""
        data = packed.tobytes()
        text = data[8 + 2 * DIGEST_BYTES :].rstrip(b"\0").decode(errors="replace")
        digests = data[8 : 8 + 2 * DIGEST_BYTES]
        size = int.from_bytes(data[:8], "little")
        return cls(size, digests[:DIGEST_BYTES], digests[DIGEST_BYTES:], text)


def exchange(planner: Planner, pairs: Sequence[Pair]) -> list[Array | None]:
    """Send to and receive from several peers at once, without any order among them.

    Returns:
        What was received, per pair; None where nothing was wanted.

    Raises:
        MismatchError: a peer sent another dtype, shape or tag than this rank wants; all
            the others have been received.
    """
    group, rooms = planner.group, [pair.room for pair in pairs]
    sends = [
        (pair.peer, pair.tag, x) for pair in pairs if (x := pair.array) is not None
    ]
    sources = [pair.peer for pair in pairs if pair.room is not None]
    headers = [np.empty(HEADER_BYTES, np.uint8) for _ in sources]
    pending: list[Pending] = []
    group.stranded.append((pending, headers, pairs))
    for peer, tag, array in sends:
        header = Header.of(array, tag).pack()
        pending.append(group.messages.send(peer, header, HEADER_TAG))
    for peer, header in zip(sources, headers, strict=True):
        pending.append(group.messages.receive(peer, header, HEADER_TAG))
    _wait(planner, pending)
    for peer, _, array in sends:
        for piece in _cut(as_bytes(flat_source(array, array.dtype))):
            pending.append(group.messages.send(peer, piece, ARRAY_TAG))
    errors = []
    for peer, header in zip(sources, headers, strict=True):
        work, error = _place(peer, Header.read(header), pairs)
        errors += [error] if error else []
        for piece in _cut(work):
            pending.append(group.messages.receive(peer, piece, ARRAY_TAG))
    _wait(planner, pending)
    group.stranded.pop()
    if errors:
        raise MismatchError(f"rank {group.rank}: " + "; ".join(errors))
    for room in rooms:
        if room is not None and not room.direct:
            room.target[...] = room.work.reshape(room.target.shape)
    return [None if room is None else room.target for room in rooms]


def _place(peer: int, told: Header, pairs: Sequence[Pair]) -> tuple[Array, str]:
    """Return the bytes that an announced array goes to, and what is wrong with it.

    A peer's headers come in the order of its pairs, which need not be ours. What
    is not wanted goes into memory that is thrown away.
    """
    wanted = [
        (Header.of(pair.room.target, pair.tag), pair.room.work)
        for pair in pairs
        if pair.room is not None and pair.peer == peer
    ]
    for ours, work in wanted:
        if (ours.tag, ours.array) == (told.tag, told.array):
            return as_bytes(work), ""
    same_tag = [ours.text for ours, _ in wanted if ours.tag == told.tag]
    texts = same_tag or [ours.text for ours, _ in wanted]
    error = f"rank {peer} sent {told.text}; wanted {' or '.join(texts)}"
    return np.empty(told.nbytes, np.uint8), error


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _cut(data: Array) -> list[Array]:
    """Return pieces that any MPI can count, the same whatever the options."""
    return [data[low:high] for low, high in segments(0, data.size, PIECE_BYTES)]


def _wait(planner: Planner, pending: list[Pending]) -> None:
    for one in pending:
        planner.group.wait(one.done, planner.options.timeout_s)
    pending.clear()
