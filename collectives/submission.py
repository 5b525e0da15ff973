"""The path that all calls take, from their arguments to their result or their error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from collectives import recorder
from collectives.agreement import agree
from collectives.calls import Call, with_window
from collectives.contents import compare
from collectives.descriptor import Descriptor
from collectives.errors import CollectiveError
from collectives.joining import agree_joining
from collectives.plans import Planner
from collectives.recorder import AGREED, CALL, STATE
from collectives.spreading import Ride
from collectives.verdicts import death, mismatch, silence
from collectives.waiting import PeerLost, TimedOut


def submit(planner: Planner, prepare: Callable[..., Call], *arguments: Any) -> Any:
    """Make a call of all members: prepare it, agree on it, run it.

    What is wrong with this rank's arguments is told to the others before it is raised.
    """
    group, options = planner.group, planner.options
    name = prepare.__name__
    group.enter(name)
    note = recorder.here.begin(group.members, group.sequence, name, group.site)
    wrong: Exception | None = None
    ride: Ride | None = None
    try:
        try:
            call = prepare(planner, *arguments)
            descriptor, ride = call.descriptor, call.ride
        except Exception as own:  # whatever it is, the others must hear of it
            wrong = own
            descriptor = Descriptor(name, invalid=_in_short(own))
        note[CALL] = descriptor
        if group.joining:
            agree_joining(group, descriptor, options.timeout_s)
        elif not agree(group, descriptor, options, ride):
            raise mismatch(group, descriptor, options)
        if wrong is not None:
            raise wrong
        note[STATE] = AGREED
        opened = call.windowed
        while call.windowed:
            call = with_window(planner, prepare, arguments, call.opens)
        if opened and call.ride is not None:  # it goes by messages after all
            agree(group, call.descriptor, options, call.ride)
        result = call.run()
        if options.check == "full":
            compare(group, name, result, options.timeout_s)
        recorder.end(note)
        return result
    except BaseException as error:
        if error is wrong:
            raise
        told = note[CALL]  # only the name, where even preparing was broken off
        fail(planner, Descriptor(name) if told == name else told, error)
    finally:
        group.exit()
        recorder.here.close(note)


def fail(
    planner: Planner,
    descriptor: Descriptor,
    error: BaseException,
    peers: Sequence[int] | None = None,
) -> NoReturn:
    """Raise what the caller is to see of an error in the middle of a call.

    The group is broken by an error that the other ranks do not have as well.
    """
    group = planner.group
    if isinstance(error, TimedOut):
        timeout_s = planner.options.timeout_s
        raise silence(group, descriptor, timeout_s, peers, error.gave_up) from None
    if isinstance(error, PeerLost):
        raise death(group, descriptor, error) from None
    if not isinstance(error, CollectiveError):
        name = descriptor.collective
        group.broken = f"{name} was broken off by {_in_short(error)}"
    raise error


def _in_short(error: BaseException) -> str:
    """Return our own errors' text, and the kind as well for anybody else's."""
    own = isinstance(error, CollectiveError)
    return str(error) if own else f"{type(error).__name__}: {error}"
