"""Calls on Python objects, by pickle: for set-up and small things, not for arrays."""

from __future__ import annotations

import pickle
from typing import Any

from collectives.algorithms.small import all_gather_bytes, broadcast_bytes
from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.plans import Planner


def broadcast_object(planner: Planner, value: Any, root: int) -> Call:
    """Give everybody the root's object."""
    planner.check_root(root)
    group, timeout_s = planner.group, planner.options.timeout_s
    mine = pickle.dumps(value) if group.rank == root else b""
    return Call(
        Descriptor("broadcast_object", root=root),
        lambda: pickle.loads(broadcast_bytes(group, mine, root, timeout_s)),
    )


def all_gather_object(planner: Planner, value: Any) -> Call:
    """Give everybody the list of all ranks' objects."""
    group, timeout_s = planner.group, planner.options.timeout_s
    mine = pickle.dumps(value)
    return Call(
        Descriptor("all_gather_object"),
        lambda: [pickle.loads(d) for d in all_gather_bytes(group, mine, timeout_s)],
    )


def gather_object(planner: Planner, value: Any, root: int) -> Call:
    """Give the root the list of all ranks' objects, and the others None."""
    planner.check_root(root)
    call = all_gather_object(planner, value)
    here = planner.group.rank == root

    def run() -> list[Any] | None:
        everything: list[Any] = call.run()
        return everything if here else None

    return Call(Descriptor("gather_object", root=root), run)
