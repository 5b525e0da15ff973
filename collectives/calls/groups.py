"""Calls that make groups; every member of the parent takes part."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from collectives.algorithms.small import all_gather_rows
from collectives.calls import Call
from collectives.deriving import derive
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.group import Group
from collectives.plans import Planner

NO_COLOR = -1
BARRIER = Call(Descriptor("barrier"), lambda: None)  # made once: its digest is kept


def barrier(planner: Planner) -> Call:
    """Return when every rank has arrived: that is what agreeing does."""
    return BARRIER


def members_of(planner: Planner, ranks: Any) -> list[int]:
    """Return the ranks that the caller has listed.

    Raises:
        InvalidArgumentError: it is no list, or not one of different ranks.
    """
    try:
        given = list(ranks)
    except TypeError:
        raise InvalidArgumentError(
            f"ranks is {ranks!r}; wanted a list of ranks"
        ) from None
    members = [planner.rank(rank, "a rank of the group") for rank in given]
    if not members or len(set(members)) < len(members):
        raise InvalidArgumentError(
            f"ranks is {members}; wanted at least one rank, none of them twice"
        )
    return members


def group(planner: Planner, ranks: Any) -> Call:
    """Make the group of `ranks`; ranks outside of it get None."""
    parent = planner.group
    members = members_of(planner, ranks)

    def run() -> Group | None:
        inside = parent.rank in members
        return derive(parent, members, planner.options.timeout_s) if inside else None

    return Call(Descriptor("group", members=tuple(members)), run)


def split(planner: Planner, color: int | None, key: int) -> Call:
    """Make a group of the ranks with the same color, ordered by key, then by rank."""
    row = (_number("color", NO_COLOR if color is None else color), _number("key", key))
    if color is not None and row[0] < 0:
        raise InvalidArgumentError(f"color is {color}; wanted None, or 0 and above")

    def run() -> Group | None:
        parent, timeout_s = planner.group, planner.options.timeout_s
        rows = all_gather_rows(parent, np.array(row, np.int64), timeout_s).tolist()
        if color is None:
            return None
        same = [(its_key, r) for r, (its, its_key) in enumerate(rows) if its == row[0]]
        return derive(parent, [rank for _, rank in sorted(same)], timeout_s)

    return Call(Descriptor("split"), run)


def twin(planner: Planner) -> Call:
    """Make the group, of all members once more, for calls in the background."""

    def run() -> Group:
        parent = planner.group
        return derive(
            parent, range(parent.size), planner.options.timeout_s, background=True
        )

    return Call(Descriptor("twin"), run)


def _number(name: str, value: int) -> int:
    """Return an integer of any type that fits into 64 bits."""
    try:
        number = operator.index(value)
        np.int64(number)
    except (TypeError, OverflowError):
        raise InvalidArgumentError(
            f"{name} is {value!r}; wanted an integer of 64 bits"
        ) from None
    return number
