"""Calls with device arrays: which way they go, on which device and stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache, partial, wraps
from inspect import signature
from typing import Any

from collectives.algorithms import REDUCING, TABLE
from collectives.algorithms.on_device import open_way
from collectives.calls import Call
from collectives.calls.pipelining import pipelined, worth_it
from collectives.calls.staging import staged
from collectives.device_plans import DevicePlanner, choose_way
from collectives.errors import InvalidArgumentError, UnsupportedError
from collectives.gpu import streams
from collectives.gpu.arrays import OnDevice, device_view, on_device
from collectives.gpu.facts import STAGED
from collectives.kernels import Kernel, kernel_for
from collectives.plans import Planner
from collectives.selection import Choice

ROWS = {"all_reduce_many": "all_reduce", "broadcast_many": "broadcast"}
"""The rows of the tables that calls on lists use."""
NOWHERE = Choice(STAGED, "by way of the host")
ONE_SIDED = ("scatter",)
"""Calls in which a rank may have no array at hand: these go by way of the host."""


def first_on_device(arguments: Sequence[Any]) -> Any:
    """Return the first device array among a call's arguments; None without."""
    for argument in arguments:
        if isinstance(argument, list | tuple) and argument:
            argument = argument[0]
        if on_device(argument):
            return argument
    return None


def placed(prepare: Callable[..., Call], stream: Any) -> Callable[..., Call]:
    """Return what prepares a call with device arrays, to be run on a stream."""

    @wraps(prepare)
    def place(planner: Planner, *arguments: Any) -> Call:
        first = first_on_device(arguments)
        if first is None:
            raise InvalidArgumentError("a stream is given, and no array on a GPU")
        given = dict(zip(_names(prepare), arguments, strict=True))
        view = device_view(first)
        with _at(view, stream):
            way = _way(planner, prepare.__name__, given)
            if given.get("algorithm") == STAGED:
                given["algorithm"] = None  # how is for the host to choose
            if way is None:
                call = _by_host(planner, prepare, given, view)
            else:
                own = planner.group.gpus
                if own is not None and own.device not in (-1, view.array.device.id):
                    raise UnsupportedError(
                        f"an array on GPU {view.array.device.id}, on a communicator "
                        f"that works on GPU {own.device}"
                    )
                if "algorithm" in given:
                    given["algorithm"] = way.algorithm
                call = prepare(DevicePlanner(planner, way), **given)
                call = call._replace(opens=partial(open_way, way.algorithm))

        def run() -> Any:
            with _at(view, stream):
                result = call.run()
                # What a way has left may be copied once more, into the caller's layout.
                streams.finish(planner.group, planner.options.timeout_s)
                return result

        return call._replace(run=run)

    return place


def _by_host(
    planner: Planner,
    prepare: Callable[..., Call],
    given: Mapping[str, Any],
    view: OnDevice,
) -> Call:
    """Return the call by way of the host, in segments if it is a large all-reduce."""
    array, out = view.array, given.get("out")
    if (
        prepare.__name__ != "all_reduce"
        or not view.known
        or not (out is None or on_device(out))
        or not worth_it(planner, array, given["op"])
    ):
        return staged(planner, prepare, given)
    target = DevicePlanner(planner, NOWHERE).target(out, array.shape, array.dtype)
    call = pipelined(planner, array, given["op"], target, given["algorithm"])
    return call if out is None else call._replace(run=lambda: (call.run(), out)[1])


def _way(planner: Planner, name: str, given: Mapping[str, Any]) -> Choice | None:
    """Return the way of a call; None: by way of the host."""
    if name == "scan" and given["exclusive"]:
        name = "exclusive_scan"
    name = ROWS.get(name, name)
    if name not in TABLE or name in ONE_SIDED:
        return None
    arrays = given["arrays"] if "arrays" in given else [given["x"]]
    views = [device_view(array) for array in arrays]
    requested = given["algorithm"]
    if not all(view.known for view in views):
        return None
    kernels = [
        kernel_for(given["op"], dtype) if name in REDUCING else None
        for dtype in dict.fromkeys(view.dtype for view in views)
    ]
    return choose_way(name, kernels, planner.group, planner.options, requested)


def _at(view: OnDevice, stream: Any) -> AbstractContextManager[Any]:
    """Return what makes an array's device, and a stream on it, the current ones."""
    stack = ExitStack()
    stack.enter_context(streams.using(view.array))
    stack.enter_context(streams.on(stream))
    return stack


def explain_way(
    planner: Planner, collective: str, kernel: Kernel | None, on_host: Choice
) -> Choice:
    """Return which way an array on a GPU would go now.

    Args:
        planner: of the communicator; what its ranks have is known, or all are staged.
        collective: a key of `TABLE`.
        kernel: for calls that combine.
        on_host: the choice for a host array.
    """
    way = None
    if planner.group.gpus is not None:
        way = choose_way(collective, [kernel], planner.group, planner.options, None)
    return way or Choice(STAGED, f"by way of the host, there by {on_host.algorithm}")


@cache
def _names(prepare: Callable[..., Call]) -> tuple[str, ...]:
    """Return the names of what a function of calls/ is given besides the planner."""
    return tuple(signature(prepare).parameters)[1:]
