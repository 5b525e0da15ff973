"""The path of calls that only some of the ranks make; nobody else is waited for.

They have no number of their own: the others do not know of them. What is wrong with
this rank's arguments must have been found before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from collectives import recorder
from collectives.agreement import CALL_NUMBER
from collectives.descriptor import Descriptor
from collectives.errors import CollectiveError
from collectives.plans import Planner
from collectives.verdicts import death, silence
from collectives.waiting import PeerLost, TimedOut

R = TypeVar("R")


def among(planner: Planner, doing: str, awaited: set[int], run: Callable[[], R]) -> R:
    """Make a call that only this rank and its peers take part in.

    Args:
        planner: of the communicator that the call is made on.
        doing: what is done, in a word.
        awaited: the peers; `run` takes out who has done his part.
        run: makes the call.
    """
    group, timeout_s = planner.group, planner.options.timeout_s
    group.enter(doing, timeout_s, collective=False)
    peers = sorted(awaited)
    note = recorder.here.begin(group.members, group.sequence, doing, group.site, peers)
    descriptor = Descriptor(doing)
    try:
        if group.board is not None:
            group.board.show(CALL_NUMBER.get(doing, CALL_NUMBER["exchange"]))
        result = run()
        recorder.end(note)
        return result
    except TimedOut:
        raise silence(group, descriptor, timeout_s, sorted(awaited)) from None
    except PeerLost as lost:
        raise death(group, descriptor, lost) from None
    except BaseException as error:
        if not isinstance(error, CollectiveError):  # the peers do not have it as well
            kind = type(error).__name__
            group.broken = f"{doing} was broken off by {kind}: {error}"
        raise
    finally:
        group.exit()
        recorder.here.close(note)
