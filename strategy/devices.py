"""Names of devices: what users write, and the one form that we write back.

A device says where a replica's arrays are. `CPU:0`, `CPU:1`, … are logical: they share
the host's memory, and exist to have several replicas in one process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import collectives
from strategy.errors import StructureError

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
        raise ValueError(f'device is {device!r}; wanted a name such as "CPU:0"')
    job, task = found["job"] or job, int(found["task"] or task)
    kind = found["kind"].upper()
    return f"/job:{job}/replica:0/task:{task}/device:{kind}:{int(found['index'])}"


def check_host(names: Sequence[str]) -> None:
    """Raise `UnsupportedError` for devices whose memory this version cannot use."""
    away = [name for name in names if "/device:CPU:" not in name]
    if away:
        raise collectives.UnsupportedError(
            f"devices {' '.join(away)}: this version keeps arrays in host memory; "
            'wanted logical CPUs such as "CPU:0"'
        )


def local_devices(
    devices: Sequence[str] | None, job: str = LOCALHOST, task: int = 0
) -> tuple[str, ...]:
    """Return full names of the devices of one process; without any, its one CPU.

    Raises `StructureError` for a device named twice, `ValueError` for a mix of this
    process's devices and others, `RuntimeError` for devices of other processes,
    `UnsupportedError` for GPUs.
    """
    names = tuple(canonical(device, job, task) for device in devices or ("CPU:0",))
    check_host(names)
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
