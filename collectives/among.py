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
from collectives.plans import Planner
from collectives.submission import fail

R = TypeVar("R")


def among(planner: Planner, doing: str, awaited: set[int], run: Callable[[], R]) -> R:
    """Make a call that only this rank and its peers take part in.

    Args:
        planner: of the communicator that the call is made on.
        doing: what is done, in a word.
        awaited: the peers; `run` takes out who has done his part.
        run: makes the call.
    """
    group = planner.group
    group.enter(doing, collective=False)
    peers = sorted(awaited)
    note = recorder.here.begin(group.members, group.sequence, doing, group.site, peers)
    try:
        if group.board is not None:
            group.board.show(CALL_NUMBER.get(doing, CALL_NUMBER["exchange"]))
        result = run()
        recorder.end(note)
        return result
    except BaseException as error:
        fail(planner, Descriptor(doing), error, sorted(awaited))
    finally:
        group.exit()
        recorder.here.close(note)
