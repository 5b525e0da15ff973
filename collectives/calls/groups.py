"""Calls that make groups; every member of the parent takes part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectives.algorithms.small import all_gather_rows
from collectives.calls import Call
from collectives.deriving import derive
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.group import Group
from collectives.plans import Planner

NO_COLOR = -1


def barrier(planner: Planner) -> Call:
    """Return when every rank has arrived: that is what agreeing does."""
    return Call(Descriptor("barrier"), lambda: None)


def group(planner: Planner, ranks: Sequence[int]) -> Call:
    """Make the group of `ranks`; ranks outside of it get None."""
    parent, members = planner.group, [int(rank) for rank in ranks]
    if not members or len(set(members)) < len(members):
        raise InvalidArgumentError(
            f"ranks is {members}; wanted at least one rank, none of them twice"
        )
    if not 0 <= min(members) <= max(members) < parent.size:
        raise InvalidArgumentError(
            f"ranks is {members}; wanted ranks from 0 to {parent.size - 1}"
        )

    def run() -> Group | None:
        inside = parent.rank in members
        return derive(parent, members, planner.options.timeout_s) if inside else None

    return Call(Descriptor("group", shape=tuple(members)), run)


def split(planner: Planner, color: int | None, key: int) -> Call:
    """Make a group of the ranks with the same color, ordered by key, then by rank."""
    if color is not None and color < 0:
        raise InvalidArgumentError(f"color is {color}; wanted None, or 0 and above")

    def run() -> Group | None:
        parent, timeout_s = planner.group, planner.options.timeout_s
        mine = np.array([NO_COLOR if color is None else color, key], np.int64)
        rows = all_gather_rows(parent, mine, timeout_s).tolist()
        if color is None:
            return None
        same = [(its_key, r) for r, (its, its_key) in enumerate(rows) if its == color]
        return derive(parent, [rank for _, rank in sorted(same)], timeout_s)

    return Call(Descriptor("split"), run)
