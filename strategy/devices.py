"""Names of devices: what users write, and the one form that we write back.

A device says where a replica's arrays are. `CPU:0`, `CPU:1`, … are logical: they share
the host's memory, and exist to have several replicas in one process. `GPU:0`, `GPU:1`,
… are those that this process sees, in the order in which CUDA counts them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import collectives
from strategy.errors import StructureError
from strategy.placing import Place

LOCALHOST = "localhost"

_NAME = re.compile(
    r"^(/job:(?P<job>\w+))?(/replica:\d+)?(/task:(?P<task>\d+))?"
    r"/?(device:)?(?P<kind>[a-z]+):(?P<index>\d+)$",
    re.IGNORECASE,
)
KINDS = ("CPU", "GPU")


def canonical(device: str, job: str = LOCALHOST, task: int = 0) -> str:
    """Return the full name of a device; `job` and `task` hold where it has none.

    Raises `ValueError` for what is not like "CPU:0", "/gpu:1" or
    "/job:worker/task:1/device:CPU:0".
    """
    found = _NAME.match(device) if isinstance(device, str) else None
    if found is None or found["kind"].upper() not in KINDS:
        raise ValueError(
            f'device is {device!r}; wanted a name such as "CPU:0" or "GPU:0"'
        )
    job, task = found["job"] or job, int(found["task"] or task)
    kind = found["kind"].upper()
    return f"/job:{job}/replica:0/task:{task}/device:{kind}:{int(found['index'])}"


@cache
def place_named(device: str) -> Place:
    """Return the number of the GPU that a name means, None for a CPU."""
    _, kind, index = canonical(device).rsplit(":", 2)
    return int(index) if kind == "GPU" else None


def gpus() -> tuple[str, ...]:
    """Return a name for each GPU that arrays can be on here; imports no CuPy."""
    return collectives.gpu.visible_devices() if find_spec("cupy") else ()


def check_there(names: Sequence[str]) -> None:
    """Raise `UnsupportedError` for GPUs that this process cannot use."""
    places = [place for place in map(place_named, names) if place is not None]
    if not places:
        return
    there = collectives.gpu.visible_devices()
    away = [f"GPU:{place}" for place in places if place >= len(there)]
    if away:
        seen = ", ".join(f"GPU:{index} ({name})" for index, name in enumerate(there))
        raise collectives.UnsupportedError(
            f"no {' '.join(away)}: this process sees {seen or 'no GPU'}"
        )
    if not find_spec("cupy"):
        collectives.gpu.cupy()  # raises, and says how to get it


def local_devices(
    devices: Sequence[str] | None, job: str = LOCALHOST, task: int = 0
) -> tuple[str, ...]:
    """Return full names of the devices of one process.

    Without any these are all its GPUs, or else its one CPU.

    Raises `StructureError` for a device named twice, `ValueError` for a mix of this
    process's devices and others, `RuntimeError` for devices of other processes,
    `UnsupportedError` for GPUs that are not there.
    """
    given = devices or [f"GPU:{index}" for index in range(len(gpus()))] or ["CPU:0"]
    names = tuple(canonical(device, job, task) for device in given)
    check_there(names)
    if len(set(names)) < len(names):
        raise StructureError(f"devices are {names}; wanted each of them once")
    home = f"/job:{job}/replica:0/task:{task}/"
    away = [name for name in names if not name.startswith(home)]
    if away and len(away) < len(names):
        raise ValueError(f"devices are {names}; wanted those of one process, not a mix")
    if away:
        raise RuntimeError(
            f"devices are {names}, of other processes; for several processes use "
            "MultiWorkerMirroredStrategy"
        )
    return names


def share_of(
    rank: int, local_ranks: Sequence[int], seen: Sequence[Sequence[str]]
) -> int:
    """Return which of the GPUs that it sees is a rank's own.

    Ranks of a host that see the same ones take them in turn, and share them where they
    are fewer; a rank whose launcher shows it one of its own takes that.

    Args:
        rank: the rank.
        local_ranks: those of its host.
        seen: what each rank sees, by names that mean nothing more.
    """
    alike = [other for other in local_ranks if seen[other] == seen[rank]]
    return alike.index(rank) % len(seen[rank])
