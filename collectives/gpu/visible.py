"""Which GPUs this process may use, without asking CUDA."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/gpus")
NODES = Path("/dev")
VISIBLE = "CUDA_VISIBLE_DEVICES"


def devices(driver: Path | None = None, nodes: Path | None = None) -> tuple[str, ...]:
    """Return a name for each of this host's GPUs: its UUID, as NVIDIA's driver says.

    Where the driver's list is hidden, as in some containers and in WSL, the names are
    those of the files by which programs reach the driver.
    """
    texts = []
    for path in sorted((DRIVER if driver is None else driver).glob("*/information")):
        try:
            texts.append(path.read_text())
        except OSError:  # a container that may not look
            continue
    listed = re.findall(r"GPU UUID:\s*(GPU-[\w-]+)", "\n".join(texts))
    folder = NODES if nodes is None else nodes
    files = [*folder.glob("nvidia[0-9]*"), *folder.glob("dxg")]
    return tuple(listed or sorted(str(path) for path in files))


def visible_devices(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return a name for each GPU that this process may use; GPU i is the i-th.

    Names are what CUDA_VISIBLE_DEVICES lists, which may be numbers, UUIDs or parts of
    them, with gaps; else the names of all of this host's. As in CUDA, an empty entry,
    -1 or the number of one that is not there ends the list.
    """
    there = devices()
    text = environ.get(VISIBLE)
    if text is None or not there:
        return there
    names: list[str] = []
    for name in (one.strip() for one in text.split(",")):
        if not name or name == "-1" or (name.isdecimal() and int(name) >= len(there)):
            break
        names.append(name)
    return tuple(names)


def may_use_gpu() -> bool:
    """Tell whether this process may come with device arrays."""
    return bool(visible_devices()) and find_spec("cupy") is not None
