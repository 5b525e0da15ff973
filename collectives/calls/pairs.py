"""What a caller passes to `exchange`: pairs, checked before anything moves."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from collectives.buffers import as_array, check_out, flat_work
from collectives.calls.points import Pair, Room, Tag
from collectives.errors import InvalidArgumentError
from collectives.kernels import Array
from collectives.plans import Planner

Given = tuple[int, Any, Any] | tuple[int, Any, Any, Tag]
"""`(peer, what to send or None, where to receive or None, tag)`."""

FORM = "(peer, what to send or None, where to receive or None), and a tag if need be"


def prepare(planner: Planner, pairs: Iterable[Given]) -> list[Pair]:
    """Check the pairs and find their arrays; nothing moves, and no other rank is asked.

    Raises:
        InvalidArgumentError: a pair that is none, no such peer, or two messages of this
            call that the peer could not tell apart.
    """
    if isinstance(pairs, (str, bytes)) or not isinstance(pairs, Iterable):
        raise InvalidArgumentError(f"pairs is {pairs!r}; wanted a list of {FORM}")
    checked = [_checked(planner, place, pair) for place, pair in enumerate(pairs)]
    _tell_apart("send to", [(peer, tag, x) for peer, x, _, tag in checked])
    _tell_apart("receive from", [(peer, tag, out) for peer, _, out, tag in checked])
    rooms = [None if out is None else _room(out) for _, _, out, _ in checked]
    targets = [room.target for room in rooms if room is not None]
    return [
        Pair(peer, tag, None if x is None else _apart(as_array(x), targets), room)
        for (peer, x, _, tag), room in zip(checked, rooms, strict=True)
    ]


def _checked(planner: Planner, place: int, pair: Any) -> tuple[int, Any, Any, Tag]:
    if not isinstance(pair, (tuple, list)) or len(pair) not in (3, 4):
        what = type(pair).__name__
        what += f" of {len(pair)}" if isinstance(pair, (tuple, list)) else ""
        raise InvalidArgumentError(f"pair {place} is a {what}; wanted {FORM}")
    given, x, out, *tag = pair
    peer = planner.rank(given, "peer")
    if peer == planner.group.rank:
        raise InvalidArgumentError(f"peer is {peer}, which is this rank itself")
    return peer, x, out, _tag(*tag)


def _tag(given: Any = None) -> Tag:
    if given is None or isinstance(given, str):
        return given
    try:
        return operator.index(given)
    except TypeError:
        raise InvalidArgumentError(
            f"tag is {given!r}; wanted a string or an integer"
        ) from None


def _tell_apart(doing: str, messages: Sequence[tuple[int, Tag, Any]]) -> None:
    """Refuse two messages that only their order would tell apart: it is easily wrong.

    Neighbours to the left and right are the same peer on two periodic ranks.
    """
    first: dict[tuple[int, Tag], int] = {}
    for place, (peer, tag, array) in enumerate(messages):
        if array is None:
            continue
        earlier = first.setdefault((peer, tag), place)
        if earlier != place:
            raise InvalidArgumentError(
                f"pairs {earlier} and {place} both {doing} rank {peer} with "
                f"{'no tag' if tag is None else f'tag {tag!r}'}; give them different "
                "tags as their fourth elements, and each message the same tag on both "
                f"ranks: (…, x, None, 'left') and (…, None, out, 'left')"
            )


def _room(out: Any) -> Room:
    array = as_array(out)
    target = check_out(out, array.shape, array.dtype)
    return Room(target, *flat_work(target, target.dtype))


def _apart(array: Array, targets: Sequence[Array]) -> Array:
    """Return what is sent, copied where something is received into its memory."""
    overlaps = any(np.may_share_memory(array, target) for target in targets)
    return array.copy() if overlaps else array
