"""The short way for all-reduces of plain arrays whose plan is known, on one host.

The same steps as in submission.py, without anything that is decided anew. Whatever is
out of the ordinary goes the long way. docs/performance.md tells what each step costs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from collectives import recorder
from collectives.agreement import CALL_NUMBER, settle
from collectives.kernels import Array
from collectives.moving import Plan
from collectives.plans import Planner
from collectives.recorder import CALL, DONE, STATE
from collectives.spreading import Ride
from collectives.submission import fail
from collectives.verdicts import mismatch

NUMBER = CALL_NUMBER["all_reduce"]
NOTHING = np.empty(0)


def all_reduce(
    planner: Planner, x: Any, op: Any, out: Any, algorithm: str | None
) -> Array | None:
    """Return the result; None, and nothing has happened, where this is not the way."""
    if type(x) is not np.ndarray:
        return None
    try:
        plan = planner.plans["all_reduce", x.dtype, x.shape, op, -1, algorithm]
    except (KeyError, TypeError):
        return None
    if plan.task is None:
        return _ride(planner, plan, plan.ride, x, out) if plan.ride else None
    if out is None:
        try:
            target = np.empty(x.shape, plan.result_dtype)
        except MemoryError:
            return None  # on the long way the others hear of it
    elif out is x or _fits(out, x, plan):
        target = out
    else:
        return None
    mail = plan.mail
    if mail is None and not x.flags.carray:
        return None
    group = planner.group
    if not target.flags.carray or not group.enter_quickly():
        return None
    sequence, board = group.sequence, group.board
    assert board is not None, "plans for the short way are made where there is one"
    note = recorder.here.begin(group.members, sequence, "all_reduce", group.site)
    note[CALL] = plan.descriptor
    try:
        if mail is not None:
            parts = mail[sequence & 1]
            parts[group.rank][...] = x
            rest = None
        else:
            task = plan.task
            task.work = flat = target.reshape(-1)
            task.source = flat if x is target else x.reshape(-1)
            rest = partial(plan.run, task) if plan.start is None else plan.start(task)
        word = plan.word ^ sequence
        board.post(sequence, NUMBER, word)
        if not board.same(sequence, word, group.looks) and not settle(
            group, word, planner.options.timeout_s
        ):
            raise mismatch(group, plan.descriptor, planner.options)
        if rest is None:
            plan.kernel.add_up(parts, target, group.divisor)
        else:
            rest()
            task.source = task.work = NOTHING  # a view would keep the memory
        recorder.end(note)
        return target
    except BaseException as error:
        plan.task.source = plan.task.work = NOTHING
        fail(planner, plan.descriptor, error)
    finally:
        group.exit()
        if note[STATE] is not DONE:
            recorder.here.close(note)


def _ride(planner: Planner, plan: Plan, ride: Ride, x: Array, out: Any) -> Array | None:
    """Do the same across hosts, where the data travel while the ranks agree."""
    group, target = planner.group, x if out is None else out
    if not plan.rides_quickly or (target is not x and not _alike(target, x)):
        return None
    if (not target.flags.writeable and out is not None) or not group.enter_quickly():
        return None
    sequence, board, kernel = group.sequence, group.board, ride.kernel
    note = recorder.here.begin(group.members, sequence, "all_reduce", group.site)
    note[CALL] = plan.descriptor
    try:
        word, spreading = plan.word ^ sequence, group.spreading
        if board is not None:
            board.post(sequence, NUMBER, word)
        turn = spreading.turn
        ride.mine[turn][...] = x
        if not spreading.agree(sequence, word, ride, planner.options.timeout_s):
            raise mismatch(group, plan.descriptor, planner.options)
        total = ride.total[turn]
        if out is None:
            target = total.copy()
        else:
            target[...] = total
        kernel.finish(target, group.divisor)
        recorder.end(note)
        return target
    except BaseException as error:
        fail(planner, plan.descriptor, error)
    finally:
        group.exit()
        if note[STATE] is not DONE:
            recorder.here.close(note)


def _fits(out: Any, x: Array, plan: Plan) -> bool:
    """Tell whether a result can go there while `x` is still being read."""
    return _alike(out, x) and (plan.mail is not None or not np.may_share_memory(x, out))


def _alike(out: Any, x: Array) -> bool:
    """Tell whether a result of what is given can go there as it is."""
    return type(out) is np.ndarray and out.shape == x.shape and out.dtype == x.dtype
