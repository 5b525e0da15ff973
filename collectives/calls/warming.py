"""Opening beforehand what first calls would open, so that none of them pays for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from collectives.algorithms.on_device import (
    ALONE,
    NCCL,
    WAYS,
    lacking,
    open_way,
    unopened,
)
from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.errors import InvalidArgumentError
from collectives.group import Group
from collectives.plans import Planner

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Opened:
    """What a group has to work with; where a reason is empty it has that."""

    no_window: str
    """Why its ranks have no memory in common to work in."""
    no_nccl: str
    """Why arrays on GPUs do not go by NCCL."""
    nccl_s: float
    """Seconds that it took this rank to open NCCL; 0 without it."""

    def __str__(self) -> str:
        """Return it in words."""
        window = f"no window: {self.no_window}" if self.no_window else "a window"
        took = f"NCCL, opened in {self.nccl_s:.2f} s"
        return f"{window}; {f'no NCCL: {self.no_nccl}' if self.no_nccl else took}"


def warm_up(planner: Planner, device: str) -> Call:
    """Open what calls go by first; return what there is then.

    Args:
        planner: of the group.
        device: "cpu" for calls with host arrays; "cuda" for those on GPUs as well, of
            which the ranks have told each other what they have.
    """
    if device not in DEVICES:
        raise InvalidArgumentError(f"device is {device!r}; wanted cpu or cuda")
    group, descriptor = planner.group, Descriptor("warm_up", algorithm=device)
    call = Call(descriptor, lambda: _opened(group))
    if group.size == 1:
        return call
    if group.window is None and not group.no_window:
        return call._replace(windowed=True)
    if device == "cuda" and group.gpus is not None:
        # What `auto` tries first; the other ways are opened as they are needed.
        can = (way for way in WAYS if way != ALONE and not lacking(way, group))
        first = next(can, None)
        if first is not None and unopened(first, group):
            return call._replace(windowed=True, opens=partial(open_way, first))
    return call


def _opened(group: Group) -> Opened:
    alone = "there is one rank" if group.size == 1 else ""
    no_nccl = alone or "no call with arrays on GPUs was made"
    if group.gpus is not None:
        no_nccl = alone or group.gpus.refusals.get(NCCL, "")
    init_s = 0.0 if group.nccl is None else group.nccl.init_s
    return Opened(alone or group.no_window, no_nccl, init_s)
