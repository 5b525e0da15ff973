"""Which algorithm for which sizes, as text: `recursive_doubling:0-8K;ring:8K-max`.

The same grammar serves the option `algorithm`, and the tables that `ringfold tune`
writes. Sizes are bytes, with K, M, G for powers of 1024. A range goes up to its second
size, included, so that `a:0-8K;b:8K-max` gives 8 KiB to `a`. Names joined by `+` race
(racing.py). What no range covers is left open.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

from collectives.errors import InvalidArgumentError

Ranges = tuple[tuple[int, str], ...]
"""`(from how many bytes on, names)`, ascending from 0 on; `OPEN`: none is named."""

OPEN = ""
MOST = "max"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
FORM = "wanted a name, or ranges such as recursive_doubling:0-8K;ring:8K-max"

_SIZE = r"(\d+)([KMG]?)"
_RANGE = re.compile(rf"([\w+]+):{_SIZE}-(?:{MOST}|{_SIZE})", re.ASCII)


@lru_cache(256)
def parse(text: str) -> Ranges:
    """Read ranges, or one name for all sizes.

    Raises:
        InvalidArgumentError: it is neither, or two ranges overlap.
    """
    if re.fullmatch(r"[\w+]+", text, re.ASCII):
        return ((0, text),)
    found: list[tuple[int, int | None, str]] = []
    for part in text.split(";"):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError(f"{part!r} in {text!r}; {FORM}")
        name, low, low_unit, high, high_unit = match.groups()
        start = int(low) * UNITS[low_unit]
        end = None if high is None else int(high) * UNITS[high_unit]
        if end is not None and end <= start:
            raise InvalidArgumentError(f"{part!r} in {text!r} is empty; {FORM}")
        found.append((start + 1 if start else 0, end, name))
    return _joined(sorted(found, key=lambda one: one[0]), text)


def _joined(found: list[tuple[int, int | None, str]], text: str) -> Ranges:
    """Return ascending ranges with the gaps between them left open."""
    ranges: list[tuple[int, str]] = []
    free: int | None = 0
    for start, end, name in found:
        if free is None or start < free:
            raise InvalidArgumentError(f"two ranges of {text!r} overlap; {FORM}")
        if start > free:
            ranges.append((free, OPEN))
        ranges.append((start, name))
        free = None if end is None else end + 1
    if free is not None:
        ranges.append((free, OPEN))
    return tuple(ranges)


def written(ranges: Ranges) -> str:
    """Return the text that `parse` reads; bounds are those between ranges."""
    starts = [start for start, _ in ranges]
    parts = [
        f"{name}:{_size(start)}-{_size(end)}"
        for (start, name), end in zip(ranges, [*starts[1:], None], strict=True)
        if name != OPEN
    ]
    return ";".join(parts)


def _size(start: int | None) -> str:
    """Write the size before which a range starts, in the largest unit that fits."""
    if start is None:
        return MOST
    last = max(0, start - 1)
    fitting = [unit for unit, size in UNITS.items() if last % size == 0]
    unit = fitting[-1] if last else ""
    return f"{last // UNITS[unit]}{unit}"


def at(ranges: Ranges, nbytes: int) -> str:
    """Return what stands in the range that a size falls into."""
    place = bisect_right(ranges, nbytes, key=lambda one: one[0])
    return ranges[place - 1][1]


def names(ranges: Ranges) -> set[str]:
    """Return what stands in the ranges that are not open."""
    return {name for _, name in ranges} - {OPEN}
