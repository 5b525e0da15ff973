"""Device arrays by way of the host: the ordinary call, between two copies.

What the caller gives is copied into pinned memory, the call is made there, by any
algorithm, and the result is copied back. The other ranks cannot tell such a call from
one with host arrays, so that ranks with and without a GPU may make it together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from collectives.calls import Call
from collectives.errors import UnsupportedError
from collectives.gpu import streams
from collectives.gpu.arrays import (
    check_writeable,
    cupy,
    device_view,
    knows,
    on_device,
)
from collectives.kernels import Array, check_op
from collectives.plans import Planner
from collectives.registered import SHARED

IN_PLACE = ("all_reduce", "broadcast")
"""Calls whose result has the shape of what is given: it may take that one's place."""
AT_ROOT = ("reduce", "gather")
"""Calls that give the other ranks nothing."""


class Target(NamedTuple):
    """Where a result is to go."""

    value: Any
    """What the caller gave."""
    array: Any
    """The same as CuPy sees it."""
    host: Array
    """Where the call leaves it."""


def staged(
    planner: Planner, prepare: Callable[..., Call], given: Mapping[str, Any]
) -> Call:
    """Return the call with host arrays in place of device arrays.

    Args:
        planner: of the calls with host arrays.
        prepare: a function of calls/.
        given: its arguments by name; `out` is where the result goes.

    Raises:
        UnsupportedError: the result would be one that CuPy does not know.
    """
    stage, arguments = Stage(planner), dict(given)
    out, source = arguments.get("out"), arguments.get("x")
    if out is SHARED:
        raise UnsupportedError("out=SHARED with arrays on a GPU")
    for name, value in arguments.items():
        arguments[name] = stage.targets(value) if name == "out" else stage.host(value)
    nothing = prepare.__name__ in AT_ROOT and arguments["root"] != planner.group.rank
    if out is None and on_device(source) and not nothing:
        host = arguments["x"]
        if not knows(host.dtype):
            raise UnsupportedError(
                f"dtype {host.dtype} without out: CuPy, which would hold the result, "
                "does not know it"
            )
        means = check_op(arguments["op"]) == "mean" if "op" in arguments else False
        if prepare.__name__ in IN_PLACE and not (means and host.dtype.kind in "iu"):
            arguments["out"] = host
    call = prepare(planner, **arguments)
    give_back = stage.on_device if out is None else stage.delivered
    return call._replace(run=lambda: give_back(call.run()))


class Stage:
    """The device arrays of one call, and where they are on the host."""

    def __init__(self, planner: Planner) -> None:
        """Begin without any."""
        self._group, self._timeout_s = planner.group, planner.options.timeout_s
        self._pinned = planner.group.pinned
        self._pinned.begin()
        self._hosts: dict[int, Array] = {}
        self._targets: list[Target] = []

    def host(self, value: Any) -> Any:
        """Return an argument with copies on the host in place of device arrays."""
        if isinstance(value, list | tuple) and any(map(on_device, value)):
            return [self.host(one) for one in value]
        if not on_device(value):
            return value
        if id(value) not in self._hosts:
            array, dtype = device_view(value)
            host = self._pinned.empty(array.shape, array.dtype)
            with streams.using(array):
                copy_to_host(array, host)
                streams.settle(self._timeout_s)
            self._hosts[id(value)] = host.view(dtype)
        return self._hosts[id(value)]

    def pairs(self, pairs: Any) -> Any:
        """Return the pairs of an exchange with host arrays in them."""
        if not isinstance(pairs, list | tuple):
            return pairs
        return [
            (pair[0], self.host(pair[1]), self.targets(pair[2]), *pair[3:])
            if isinstance(pair, list | tuple) and len(pair) > 2
            else pair
            for pair in pairs
        ]

    def targets(self, value: Any) -> Any:
        """Return host arrays for where results go; what is given as well, in place."""
        if isinstance(value, list | tuple) and any(map(on_device, value)):
            return [self.targets(one) for one in value]
        if not on_device(value):
            return value
        check_writeable(value)
        array, dtype = device_view(value)
        host = self._hosts.get(id(value))
        if host is None:
            host = self._pinned.empty(array.shape, array.dtype).view(dtype)
        self._targets.append(Target(value, array, host))
        return host

    def delivered(self, result: Any) -> Any:
        """Return what the caller gave for results, which by then are there."""
        if isinstance(result, list | tuple):
            return [self.delivered(one) for one in result]
        for target in self._targets:
            if target.host is result:
                self._fill(target.array, result.view(target.array.dtype))
                return target.value
        return result

    def on_device(self, result: Any) -> Any:
        """Return results that are copied into new arrays on the device."""
        if isinstance(result, list | tuple):
            return [self.on_device(one) for one in result]
        if not isinstance(result, np.ndarray):
            return result
        array = cupy().empty(result.shape, result.dtype)
        self._fill(array, result)
        return array

    def _fill(self, array: Any, host: Array) -> None:
        with streams.using(array):
            copy_to_device(host, array)
            streams.finish(self._group, self._timeout_s)


def copy_to_host(array: Any, host: Array) -> None:
    """Queue a copy of a CuPy array into pinned memory of that shape, in C order."""
    if array.size:
        whole = array if array.flags.c_contiguous else array.copy(order="C")
        whole.get(out=host, blocking=False)


def copy_to_device(host: Array, array: Any) -> None:
    """Queue a copy of a host array into a CuPy array of that shape, of any layout."""
    if not host.size:
        return
    if array.flags.c_contiguous:
        array.set(host)
    else:
        between = cupy().empty(host.shape, host.dtype)
        between.set(host)
        array[...] = between
