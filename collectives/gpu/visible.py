"""Which GPUs this process may use, without asking CUDA."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/gpus")
VISIBLE = "CUDA_VISIBLE_DEVICES"


def devices(driver: Path | None = None) -> tuple[str, ...]:
    """Return the UUIDs of this host's GPUs, as NVIDIA's driver lists them."""
    texts = []
    for path in sorted((DRIVER if driver is None else driver).glob("*/information")):
        try:
            texts.append(path.read_text())
        except OSError:  # a container that may not look
            continue
    return tuple(re.findall(r"GPU UUID:\s*(GPU-[\w-]+)", "\n".join(texts)))


def visible_devices(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return a name for each GPU that this process may use; GPU i is the i-th.

    Names are what CUDA_VISIBLE_DEVICES lists, which may be numbers, UUIDs or parts of
    them, with gaps; else the UUIDs of all of this host's. As in CUDA, an empty entry or
    -1 ends the list.
    """
    there = devices()
    text = environ.get(VISIBLE)
    if text is None or not there:
        return there
    names: list[str] = []
    for name in (one.strip() for one in text.split(",")):
        if not name or name == "-1":
            break
        names.append(name)
    return tuple(names)


def may_use_gpu() -> bool:
    """Tell whether this process may come with device arrays."""
    return bool(visible_devices()) and find_spec("cupy") is not None
