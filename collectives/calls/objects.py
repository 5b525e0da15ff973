"""Calls on Python objects, by pickle: for set-up, and for what is not one array.

First goes the stream that pickle wrote, then each large array of the object, on its
own, into the memory in which it stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collectives.algorithms.small import (
    all_gather_bytes,
    all_gather_errors,
    broadcast_bytes,
    broadcast_flat,
    gather_bytes,
    hand_over,
)
from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.errors import UnsupportedError
from collectives.pickling import Parcel, dump, load, room_for
from collectives.plans import Planner


def broadcast_object(planner: Planner, value: Any, root: int) -> Call:
    """Give everybody the root's object; the root gets itself back what it gave."""
    root = planner.rank(root)
    group, timeout_s = planner.group, planner.options.timeout_s
    here = group.rank == root
    mine = _dump(planner, value) if here else Parcel(np.empty(0, np.uint8), [])

    def run() -> Any:
        stream = broadcast_bytes(group, mine.stream, root, timeout_s)
        parcel = mine if here else Parcel(stream, room_for(stream))
        for frame in parcel.frames:
            broadcast_flat(group, frame, root, timeout_s)
        loaded = _load(planner, {} if here else {root: parcel})
        return value if here else loaded[root]

    return Call(Descriptor("broadcast_object", root=root), run)


def all_gather_object(planner: Planner, value: Any) -> Call:
    """Give everybody the list of all ranks' objects, all of them copies."""
    group, timeout_s = planner.group, planner.options.timeout_s
    mine = _dump(planner, value)

    def run() -> list[Any]:
        streams = all_gather_bytes(group, mine.stream, timeout_s)
        parcels = _parcels(group.rank, mine, streams)
        for rank, parcel in parcels.items():
            for frame in parcel.frames:
                broadcast_flat(group, frame, rank, timeout_s)
        return list(_load(planner, parcels).values())

    return Call(Descriptor("all_gather_object"), run)


def gather_object(planner: Planner, value: Any, root: int) -> Call:
    """Give the root the list of all ranks' objects, and the others None."""
    root = planner.rank(root)
    group, timeout_s = planner.group, planner.options.timeout_s
    mine = _dump(planner, value)

    def run() -> list[Any] | None:
        streams = gather_bytes(group, mine.stream, root, timeout_s)
        parcels = _parcels(group.rank, mine, streams)
        for rank, parcel in (parcels or {group.rank: mine}).items():
            if rank != root:
                for frame in parcel.frames:
                    hand_over(group, frame, rank, root, timeout_s)
        loaded = _load(planner, parcels)
        return list(loaded.values()) if group.rank == root else None

    return Call(Descriptor("gather_object", root=root), run)


def _dump(planner: Planner, value: Any) -> Parcel:
    return dump(value, planner.options.object_limit_bytes)


def _parcels(rank: int, mine: Parcel, streams: list[Any]) -> dict[int, Parcel]:
    """Return everybody's parcels; only this rank's own has anything in its frames."""
    parcels = {
        sender: Parcel(flat := np.frombuffer(stream, np.uint8), room_for(flat))
        for sender, stream in enumerate(streams)
    }
    if parcels:
        for copy, frame in zip(parcels[rank].frames, mine.frames, strict=True):
            copy[:] = frame
    return parcels


def _load(planner: Planner, parcels: dict[int, Parcel]) -> dict[int, Any]:
    """Unpickle; raise the same error everywhere if any rank could not."""
    values, complaint = {}, ""
    for sender, parcel in parcels.items():
        try:
            values[sender] = load(parcel)
        except Exception as error:  # classes may raise whatever they like
            kind = type(error).__name__
            complaint = f"cannot unpickle rank {sender}'s object: {kind}: {error}"
            break
    errors = all_gather_errors(planner.group, complaint, planner.options.timeout_s)
    if errors:
        raise UnsupportedError(errors)
    return values
