"""Which addresses are memory that the driver knows, whose, and whether still."""

import bisect
from dataclasses import dataclass

from cupy._misuse import Misuse


@dataclass
class Range:
    """A stretch of addresses."""

    low: int
    high: int
    kind: str
    """"device", "peer" (another process's, opened by a handle), "pinned"."""
    device: int = -1
    gone: str = ""
    """Why it must not be used any more."""
    memory: object = None
    """What the addresses are mapped to."""


_lows: list[int] = []
_ranges: dict[int, Range] = {}


def add(found: Range) -> Range:
    """Remember a range; whatever was at its addresses before is forgotten."""
    for low in [
        r.low for r in _ranges.values() if r.low < found.high and found.low < r.high
    ]:
        if not _ranges[low].gone:
            raise Misuse(f"memory at {low:#x} is registered twice")
        remove(_ranges[low])
    bisect.insort(_lows, found.low)
    _ranges[found.low] = found
    return found


def remove(found: Range) -> None:
    """Forget a range."""
    _lows.remove(found.low)
    del _ranges[found.low]


def find(address: int) -> Range | None:
    """Return the range in which an address lies; None where it is plain host memory."""
    place = bisect.bisect_right(_lows, address) - 1
    if place < 0:
        return None
    found = _ranges[_lows[place]]
    return found if address < found.high else None


def usable(address: int, size: int, what: str) -> Range | None:
    """Return the range of some bytes, after checking that they may be used."""
    found = find(address)
    if found is None or size == 0:
        return found
    if found.gone:
        raise Misuse(f"{what} touches memory at {address:#x}, which {found.gone}")
    if address + size > found.high:
        over = address + size - found.high
        raise Misuse(f"{what} goes {over} bytes beyond the memory at {found.low:#x}")
    if found.memory is not None:
        check = getattr(found.memory, "check", None)
        if check is not None:
            check(what)
    return found


def on_device(address: int, size: int, what: str) -> Range:
    """Return the range of some bytes that must be a device's."""
    found = usable(address, size, what)
    if found is None or found.kind == "pinned":
        raise Misuse(f"{what} was given {address:#x}, which is no memory of a device")
    return found
