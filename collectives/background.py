"""Every collective that can go on in the background, as a `start_…` method."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from collectives.handles import Handle
from collectives.methods import Collectives

P = ParamSpec("P")
R = TypeVar("R")


def starting(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Handle[R]]:
    """Return the method that starts a call instead of making it."""

    @wraps(method)
    def start(self: Any, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        handle: Handle[R] = self._start(
            method.__name__, lambda comm: method(comm, *args, **kwargs)
        )
        return handle

    start.__name__ = f"start_{method.__name__}"
    start.__doc__ = f"Start `{method.__name__}` and return a `Handle` to its result."
    return cast("Callable[Concatenate[Any, P], Handle[R]]", start)


class Background(Collectives):
    """The `start_…` methods; each takes the arguments of the method it is named after.

    What they return is a `Handle`. The arrays belong to the call until it is done. The
    first one on a communicator makes a group for them, together with all ranks.
    """

    def _start(self, name: str, call: Callable[[Any], R]) -> Handle[R]:
        raise NotImplementedError

    start_all_reduce = starting(Collectives.all_reduce)
    start_reduce = starting(Collectives.reduce)
    start_scan = starting(Collectives.scan)
    start_reduce_scatter = starting(Collectives.reduce_scatter)
    start_broadcast = starting(Collectives.broadcast)
    start_all_gather = starting(Collectives.all_gather)
    start_gather = starting(Collectives.gather)
    start_scatter = starting(Collectives.scatter)
    start_all_to_all = starting(Collectives.all_to_all)
    start_all_reduce_many = starting(Collectives.all_reduce_many)
    start_broadcast_many = starting(Collectives.broadcast_many)
    start_barrier = starting(Collectives.barrier)
    start_broadcast_object = starting(Collectives.broadcast_object)
    start_all_gather_object = starting(Collectives.all_gather_object)
    start_gather_object = starting(Collectives.gather_object)
    start_exchange = starting(Collectives.exchange)
