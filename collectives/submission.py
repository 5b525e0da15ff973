"""The path that all calls take, from their arguments to their result or their error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from collectives import recorder
from collectives.agreement import CALL_NUMBER, agree
from collectives.calls import Call, Ride, points
from collectives.contents import compare
from collectives.descriptor import Descriptor
from collectives.errors import CollectiveError
from collectives.joining import agree_joining
from collectives.plans import Planner
from collectives.recorder import AGREED, CALL, STATE
from collectives.verdicts import death, mismatch, silence
from collectives.waiting import PeerLost, TimedOut


def submit(planner: Planner, prepare: Callable[..., Call], *arguments: Any) -> Any:
    """Make a call of all members: prepare it, agree on it, run it.

    What is wrong with this rank's arguments is told to the others before it is raised.
    """
    group, options = planner.group, planner.options
    name = prepare.__name__
    group.enter(name, options.timeout_s)
    note = recorder.here.begin(group.members, group.sequence, name, group.site)
    error: Exception | None = None
    ride: Ride | None = None
    try:
        try:
            call = prepare(planner, *arguments)
            descriptor, ride = call.descriptor, call.ride
        except Exception as own:  # whatever it is, the others must hear of it
            error = own
            descriptor = Descriptor(name, invalid=_in_short(own))
        note[CALL] = descriptor
        if group.joining:
            agree_joining(group, descriptor, options.timeout_s)
        elif not agree(group, descriptor, options, ride):
            raise mismatch(group, descriptor, options)
        if error is not None:
            raise error
        note[STATE] = AGREED
        result = call.run()
        if options.check == "full":
            compare(group, name, result, options.timeout_s)
        recorder.end(note)
        return result
    except TimedOut:
        raise silence(group, descriptor, options.timeout_s) from None
    except PeerLost as lost:
        raise death(group, descriptor, lost) from None
    except BaseException as own:
        if own is not error:
            _break(planner, name, own)
        raise
    finally:
        group.exit()
        recorder.here.close(note)


def exchange(planner: Planner, doing: str, pairs: Sequence[points.Pair]) -> list[Any]:
    """Make a call that only this rank and its peers take part in."""
    group, timeout_s = planner.group, planner.options.timeout_s
    group.enter(doing, timeout_s, collective=False)
    peers = [peer for peer, *_ in pairs]
    note = recorder.here.begin(group.members, group.sequence, doing, group.site, peers)
    descriptor = Descriptor(doing)
    try:
        if group.board is not None:
            group.board.show(CALL_NUMBER["exchange"])
        received = points.exchange(planner, pairs)
        recorder.end(note)
        return received
    except TimedOut:
        raise silence(group, descriptor, timeout_s, peers) from None
    except PeerLost as lost:
        raise death(group, descriptor, lost) from None
    except BaseException as own:
        _break(planner, doing, own)
        raise
    finally:
        group.exit()
        recorder.here.close(note)


def _break(planner: Planner, name: str, error: BaseException) -> None:
    """Mark the group as broken by an error that the other ranks do not have as well."""
    if not isinstance(error, CollectiveError):
        planner.group.broken = f"{name} was broken off by {_in_short(error)}"


def _in_short(error: BaseException) -> str:
    """Return our own errors' text, and the kind as well for anybody else's."""
    own = isinstance(error, CollectiveError)
    return str(error) if own else f"{type(error).__name__}: {error}"
