"""Module-level functions: each is the method of the same name on `world()`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from collectives.communicator import Communicator
from collectives.startup import world

P = ParamSpec("P")
R = TypeVar("R")


def _on_world(method: Callable[..., R]) -> Callable[..., R]:
    """Return a function that calls `method` of the world's communicator."""

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> R:
        return method(world(), *args, **kwargs)

    return call


all_gather = _on_world(Communicator.all_gather)
all_gather_object = _on_world(Communicator.all_gather_object)
all_reduce = _on_world(Communicator.all_reduce)
all_reduce_many = _on_world(Communicator.all_reduce_many)
all_to_all = _on_world(Communicator.all_to_all)
barrier = _on_world(Communicator.barrier)
broadcast = _on_world(Communicator.broadcast)
broadcast_many = _on_world(Communicator.broadcast_many)
broadcast_object = _on_world(Communicator.broadcast_object)
choose = _on_world(Communicator.choose)
exchange = _on_world(Communicator.exchange)
gather = _on_world(Communicator.gather)
gather_object = _on_world(Communicator.gather_object)
recv = _on_world(Communicator.recv)
reduce = _on_world(Communicator.reduce)
reduce_scatter = _on_world(Communicator.reduce_scatter)
scan = _on_world(Communicator.scan)
scatter = _on_world(Communicator.scatter)
send = _on_world(Communicator.send)
