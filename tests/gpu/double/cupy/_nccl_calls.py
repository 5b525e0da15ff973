"""What each call of NCCL does with bytes: dtypes, ops, and who gives what to whom."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cupy import _ranges
from cupy._array import over
from cupy._meeting import Meeting
from cupy._misuse import Misuse

try:
    from ml_dtypes import bfloat16
except ImportError:  # pragma: no cover - the tests have it
    bfloat16 = "V2"  # type: ignore[misc, assignment]

DTYPES = ["i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8", bfloat16]
SUM, PROD, MAX, MIN, AVG = range(5)
# As NCCL's own kernels: where one of two numbers is NaN, min and max give the other.
OPS: list[Callable[[Any, Any], Any]] = [np.add, np.multiply, np.fmax, np.fmin, np.add]


@dataclass
class Call:
    """One call on one rank; lengths in elements."""

    name: str
    send: int
    receive: int
    sent: int
    received: int
    dtype: Any
    op: int = -1
    root: int = -1
    peer: int = -1
    key: str = field(default="", init=False)
    number: int = field(default=-1, init=False)

    @property
    def signature(self) -> tuple[Any, ...]:
        """What must be alike on all ranks."""
        if self.peer >= 0:
            return ("message", self.sent or self.received, str(self.dtype))
        count = min(self.sent, self.received) or max(self.sent, self.received)
        return (self.name, count, str(self.dtype), self.op, self.root)

    def span(self, which: str) -> list[tuple[int, int]]:
        address, count = (
            (self.send, self.sent) if which == "send" else (self.receive, self.received)
        )
        size = count * self.dtype.itemsize
        return [(address, address + size)] if size else []

    def check(self, device: int, rank: int) -> None:
        """Object to memory that is not the device's, and to sides that overlap."""
        for address, high in self.span("send") + self.span("receive"):
            found = _ranges.on_device(address, high - address, f"NCCL's {self.name}")
            if found.kind == "device" and found.device != device:
                raise Misuse(f"NCCL's {self.name} on device {device} was given {found}")
        for (a, b), (c, d) in zip(
            self.span("send"), self.span("receive"), strict=False
        ):
            shift = self.dtype.itemsize * rank * min(self.sent, self.received)
            longer = self.sent - self.received
            place = c - a if longer <= 0 else a - c
            allowed = {0: a - c, 1: c - a - shift, -1: a - c - shift}
            if a < d and c < b and allowed[int(np.sign(longer))] != 0:
                raise Misuse(
                    f"NCCL's {self.name} in place by {place} bytes, off its place"
                )

    def gives(self) -> bytes:
        return ctypes.string_at(self.send, self.sent * self.dtype.itemsize)

    def writes(self, values: Any) -> None:
        if self.received:
            target = over(self.receive, (self.received,), self.dtype)
            target[...] = values


def start(call: Call, meeting: Meeting) -> None:
    """Give what the others need of this rank."""
    if call.name == "recv":
        return meeting.give(f"{call.key}.wanted", call.signature, b"")
    empty = call.name in ("broadcast",) and meeting.rank != call.root
    octets = b"" if empty else call.gives()
    key = call.key if call.name == "send" else f"{call.key}.{meeting.rank}"
    return meeting.give(key, call.signature, octets, call.number)


def ready(call: Call, meeting: Meeting) -> bool:
    """Tell whether all is there that this rank needs."""
    if call.name == "send":
        return meeting.there(f"{call.key}.wanted")
    if call.name == "recv":
        return meeting.there(call.key)
    return all(meeting.there(f"{call.key}.{rank}") for rank in range(meeting.size))


def finish(call: Call, meeting: Meeting) -> None:
    """Write the result."""
    if call.name == "send":
        meeting.take(f"{call.key}.wanted", remove=True)
        return
    if call.name == "recv":
        signature, octets = meeting.take(call.key, remove=True)
        _alike(call, signature, call.peer)
        call.writes(np.frombuffer(octets, np.uint8).view(call.dtype))
        return
    parts = []
    for rank in range(meeting.size):
        signature, octets = meeting.take(f"{call.key}.{rank}")
        _alike(call, signature, rank)
        parts.append(np.frombuffer(octets, np.uint8).view(call.dtype))
    if call.name == "broadcast":
        call.writes(parts[call.root])
    elif call.name == "allGather":
        call.writes(np.concatenate(parts))
    elif call.name == "allReduce" or meeting.rank == call.root:
        call.writes(_reduced(parts, call))
    elif call.name == "reduceScatter":
        low = meeting.rank * call.received
        part = [part[low : low + call.received] for part in parts]
        call.writes(_reduced(part, call))


def _alike(call: Call, signature: Any, rank: int) -> None:
    if signature != call.signature:
        raise Misuse(
            f"NCCL's calls differ: {call.signature} here, {signature} on {rank}"
        )


def _reduced(parts: list[Any], call: Call) -> Any:
    """Combine in rank order, rounding at each step; a mean multiplies floats first."""
    floats = call.dtype.kind not in "iu"
    with np.errstate(all="ignore"):
        if call.op == AVG and floats:
            factor = call.dtype.type(1 / len(parts))
            parts = [(part * factor).astype(call.dtype) for part in parts]
        total = parts[0]
        for part in parts[1:]:
            total = OPS[call.op](total, part).astype(call.dtype)
        if call.op == AVG and not floats:
            total = (total / len(parts)).astype(call.dtype)
    return total
