"""How Slurm writes hosts and task counts: `n[01-03,7],m` and `2(x3),1`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

# An entry is literal text and bracketed lists of numbers and ranges in any order.
_ENTRY = re.compile(r"(?:[^\[\],]|\[[^\[\]]+\])+")
_PART = re.compile(r"\[([^\[\]]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def expand_hostlist(hostlist: str) -> list[str]:
    """Return the hosts in their order; numbers keep the width of a range's start.

    Raises `ValueError` for a list that cannot be read.
    """
    hosts = []
    for entry in _split(hostlist):
        if not _ENTRY.fullmatch(entry):
            raise ValueError(f"host list {hostlist!r}: cannot read {entry!r}")
        parts = [
            _numbers(found[1], hostlist) if found[1] else [found[2]]
            for found in _PART.finditer(entry)
        ]
        hosts += ["".join(chosen) for chosen in product(*parts)]
    return hosts


def expand_tasks_per_node(tasks: str) -> list[int]:
    """Return the number of tasks of each node; `ValueError` for an unreadable list."""
    counts = []
    for entry in tasks.split(","):
        found = _TASKS.fullmatch(entry)
        if not found:
            raise ValueError(
                f"tasks per node {tasks!r}: cannot read {entry!r}; wanted something "
                "like 2(x3),1"
            )
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def _split(hostlist: str) -> Iterator[str]:
    """Yield what is between the commas outside of brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(hostlist):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield hostlist[start:place]
            start = place + 1
    yield hostlist[start:]


def _numbers(text: str, hostlist: str) -> list[str]:
    """Return the numbers of one pair of brackets."""
    numbers = []
    for item in text.split(","):
        found = _RANGE.fullmatch(item)
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise ValueError(
                f"host list {hostlist!r}: cannot read [{text}]; wanted numbers and "
                "ranges like [01-03,7]"
            )
        first, last = int(found[1]), int(found[2] or found[1])
        numbers += [f"{number:0{len(found[1])}}" for number in range(first, last + 1)]
    return numbers
