"""Opening beforehand what first calls would open, so that none of them pays for it."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.group import Group
from collectives.plans import Planner


@dataclass(frozen=True)
class Opened:
    """What a group has to work with; an empty reason: it is there."""

    no_window: str
    """Why its ranks work in no memory that they share."""
    no_nccl: str
    """Why arrays on GPUs do not go by NCCL."""
    nccl_s: float
    """Seconds that it took this rank to open NCCL; 0 without it."""

    def __str__(self) -> str:
        """Return it in words."""
        window = f"no window: {self.no_window}" if self.no_window else "a window"
        nccl = f"NCCL in {self.nccl_s:.2f} s"
        return f"{window}; {f'no NCCL: {self.no_nccl}' if self.no_nccl else nccl}"


def warm_up(planner: Planner) -> Call:
    """Open the window; there is nothing else to do."""
    group = planner.group
    windowed = group.size > 1 and group.window is None and not group.no_window
    return Call(Descriptor("warm_up"), lambda: None, windowed=windowed)


def opened(group: Group) -> Opened:
    """Return what a group has, after all of it was opened."""
    no_nccl = "" if group.gpus is None else group.gpus.refusals.get("nccl", "")
    no_window = "there is one rank" if group.size == 1 else group.no_window
    init_s = 0.0 if group.nccl is None else group.nccl.init_s
    return Opened(no_window, no_nccl, init_s)
