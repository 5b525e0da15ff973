"""How what has been chosen is run: at once, begun before the ranks agree, or in a race.

In a race the ranks learn who runs in the hand-over before. Where something can begin
early that is the one with which they agree on the call, and nothing comes on top.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import TypeVar

from collectives.algorithms import TABLE, Start
from collectives.algorithms.stepwise import Task
from collectives.board import RIVAL, Board
from collectives.group import Group
from collectives.racing import Heat
from collectives.selection import ALONE, Choice

R = TypeVar("R")


def runner(
    group: Group, collective: str, choice: Choice, nbytes: int
) -> Callable[[Task], None]:
    """Return what carries out a task that all ranks have agreed on."""
    table = TABLE[collective]
    if group.size == 1:
        return table[ALONE[collective]].run
    if not choice.rivals:
        return table[choice.algorithm].run
    heat = group.race.heat(collective, nbytes, choice.rivals)
    runs = [table[name].run for name in heat.rivals]
    return lambda task: race(
        group, heat, task.timeout_s, lambda number: runs[number](task)
    )


def starter(group: Group, collective: str, choice: Choice, nbytes: int) -> Start | None:
    """Return what begins a task before the ranks of a host agree, if anything can."""
    table = TABLE[collective]
    starts = {name: table[name].start for name in choice.rivals or (choice.algorithm,)}
    if group.size == 1 or group.window is None or not any(starts.values()):
        return None
    if not choice.rivals:
        return starts[choice.algorithm]
    heat = group.race.heat(collective, nbytes, choice.rivals)
    runs = [table[name].run for name in heat.rivals]

    def start(task: Task) -> Callable[[], None]:
        if not heat.left:
            _announce(group, heat)
            return lambda: _decide(group, heat, lambda number: runs[number](task))
        begin = starts[heat.rivals[heat.current]]
        rest = partial(runs[heat.current], task) if begin is None else begin(task)

        def end() -> None:
            heat.left -= 1
            rest()

        return end

    return start


def race(group: Group, heat: Heat, timeout_s: float, run: Callable[[int], R]) -> R:
    """Let the rival run that rank 0 picks, by its number in `heat.rivals`."""
    if heat.left:
        heat.left -= 1
        return run(heat.current)
    _announce(group, heat)
    group.hand_over(timeout_s)
    return _decide(group, heat, run)


def _announce(group: Group, heat: Heat) -> None:
    """Let rank 0 say who runs, to be read after the next hand-over."""
    if group.rank == 0:
        _board(group).write(RIVAL + group.race.turn, heat.announce())


def _decide(group: Group, heat: Heat, run: Callable[[int], R]) -> R:
    """Let run what has been announced, and remember how long it takes."""
    board, racing = _board(group), group.race
    heat.follow(board.read_first(RIVAL + racing.turn))
    racing.note(max(board.read(racing.took_word)))
    racing.turn ^= 1
    number, start = heat.current, perf_counter_ns()
    result = run(number)
    board.write(racing.ended(heat, number), perf_counter_ns() - start)
    return result


def _board(group: Group) -> Board:
    assert group.board is not None, "only those who share a board can agree on a rival"
    return group.board
