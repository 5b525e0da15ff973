"""Plans for calls whose arrays stay on the GPU from beginning to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectives.algorithms import AUTO, TABLE, Algorithm
from collectives.algorithms.on_device import ALONE, WAYS, refusal, unopened
from collectives.algorithms.stepwise import Task
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.gpu.arrays import check_writeable, cupy, device_view
from collectives.group import Group
from collectives.kernels import Kernel
from collectives.options import Options
from collectives.plans import Planner
from collectives.selection import Choice, note_first_use


def choose_way(
    collective: str,
    kernels: list[Kernel | None],
    group: Group,
    options: Options,
    requested: str | None,
) -> Choice | None:
    """Choose how device arrays are moved; None: by way of the host.

    Args:
        collective: a key of `TABLE`.
        kernels: of each dtype that is to be combined; None for calls that only move.
        group: the ranks, whose `gpus` are known.
        options: the communicator's.
        requested: a name of a way, of an algorithm on the host, or None.

    Raises:
        UnsupportedError: the way that is asked for cannot be had; the text names the
            ranks that are in its way.
    """

    def why_not(way: str) -> str:
        reasons = (refusal(way, collective, k, group, options) for k in kernels)
        return next(filter(None, reasons), "")

    name = requested or options.algorithm
    if requested is None and name in WAYS and collective not in WAYS[name].rows:
        name = AUTO  # an option is for the collectives that have that way
    if group.joining or (name != AUTO and name not in WAYS):
        return None
    if name != AUTO:
        reason = why_not(name)
        if reason and name in TABLE[collective]:
            return None  # that is what an algorithm of the host is called as well
        if reason:
            raise UnsupportedError(f"{collective} by {name}: {reason}")
        return Choice(name, "asked for")
    refused: list[str] = []
    for way in WAYS:
        reason = why_not(way)
        if not reason:
            without = f"; not {', not '.join(refused)}" if refused else ""
            return Choice(way, f"arrays on GPUs{without}")
        if way != ALONE:
            refused.append(f"{way}: {reason}")
    return None


class DevicePlanner(Planner):
    """Makes the plans of calls that go one way, with CuPy arrays."""

    on_device = True

    def __init__(self, planner: Planner, way: Choice) -> None:
        """Plan calls of another planner's group and options."""
        self.group = planner.group
        self.options = planner.options
        self.way = way
        self.plans = self.group.plans.setdefault((self.options, way.algorithm), {})

    def array(self, value: Any) -> Any:
        """Return the caller's array as CuPy sees it."""
        return device_view(value).array

    def empty(self, shape: Any, dtype: Any) -> Any:
        """Return a new array on the current device."""
        return cupy().empty(shape, dtype)

    def check_out(self, out: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a target on a GPU, after making sure that the result fits into it."""
        check_writeable(out)
        view = device_view(out)
        if view.array.shape != shape:
            raise InvalidArgumentError(
                f"out has shape {view.array.shape}; wanted {shape}"
            )
        if view.dtype != dtype:
            raise InvalidArgumentError(f"out has dtype {view.dtype}; wanted {dtype}")
        return view.array

    def wants_window(self, collective: str, choice: Choice) -> bool:
        """Tell whether something must be opened first."""
        return unopened(choice.algorithm, self.group)

    def row(self, collective: str, name: str) -> Algorithm:
        """Return what is known of a way."""
        return WAYS[name].rows[collective]

    def asked(self, collective: str, algorithm: str | None) -> str:
        """Return the way, which has been chosen before."""
        return self.way.algorithm

    def choose(
        self, collective: str, nbytes: int, kernel: Kernel | None, algorithm: str | None
    ) -> Choice:
        """Return the way."""
        if self.options.log == "info" and self.group.rank == 0:
            note_first_use(collective, self.way)
        return self.way

    def runner(
        self, collective: str, choice: Choice, nbytes: int
    ) -> Callable[[Task], None]:
        """Return what carries out a task that way."""
        return self.row(collective, choice.algorithm).run
