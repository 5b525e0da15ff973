"""The GPUs of each rank: what is there, what CuPy can use, and who shares one."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.gpu.facts import uuid_of
from collectives.gpu.visible import devices
from collectives.topology import Topology

DRIVER = Path("/proc/driver/nvidia/version")
COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")


@dataclass(frozen=True)
class Device:
    """One GPU, or the slice of one (MIG), as CUDA shows it to this process."""

    name: str
    uuid: str
    bus: str
    gib: float
    compute_mode: str = "default"
    mig: bool = False


@dataclass(frozen=True)
class GpuFacts:
    """What a process finds of GPUs; empty where there is none."""

    driver: str = ""
    """Version of NVIDIA's driver."""
    cuda_driver: str = ""
    """The newest CUDA that the driver can run."""
    cuda: str = ""
    """The CUDA that CuPy was built for."""
    cupy: str = ""
    nccl: str = ""
    devices: tuple[Device, ...] = ()
    """In the order of their numbers."""
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES; None where it is not set."""
    apart: tuple[tuple[int, int], ...] = ()
    """Pairs of devices that cannot read each other's memory."""
    problem: str = ""
    """Why GPUs that are there cannot be used."""

    @property
    def there(self) -> bool:
        """Whether this machine has a GPU, usable or not."""
        return bool(self.devices or self.driver or self.problem)

    @property
    def line(self) -> str:
        """What is said in the header, of one process."""
        if not self.there:
            return f"none{f' (CuPy {self.cupy} is installed)' if self.cupy else ''}"
        names = [device.name for device in self.devices]
        kinds = (f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        parts = [
            ", ".join(kinds) or "none that can be used",
            f"driver {self.driver or 'unknown'} (CUDA {self.cuda_driver or 'unknown'})",
            f"CuPy {self.cupy or 'not installed'}"
            + (f" (CUDA {self.cuda})" if self.cuda else ""),
            f"NCCL {self.nccl or 'not there'}",
        ]
        return ", ".join(parts)


def gpu_facts() -> GpuFacts:
    """Look for GPUs with CuPy, if it is installed; a failure is a fact like others."""
    driver, listed = _driver(), devices()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about an NCCL that is not there
            cupy: Any = importlib.import_module("cupy")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
        problem = "CuPy is not installed" if missing else f"import cupy fails: {error}"
        there = bool(driver or listed)
        return GpuFacts(driver, visible=visible, problem=problem if there else "")
    runtime = cupy.cuda.runtime
    found: tuple[Device, ...] = ()
    problem = cuda_driver = ""
    try:
        cuda_driver = _cuda(runtime.driverGetVersion())
        numbers = range(runtime.getDeviceCount())
        found = tuple(_device(runtime, number) for number in numbers)
    except runtime.CUDARuntimeError as error:
        # Without any driver that is how CUDA says that there is no GPU.
        problem = str(error) if driver or listed else ""
        if problem and visible is not None:
            problem = f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU ({error})"
    return GpuFacts(
        driver=driver,
        cuda_driver=cuda_driver,
        cuda=_cuda(runtime.runtimeGetVersion()),
        cupy=cupy.__version__,
        nccl=_nccl(cupy),
        devices=found,
        visible=visible,
        apart=_apart(runtime, len(found)),
        problem=problem,
    )


def used(facts: GpuFacts, topology: Topology | None) -> Device | None:
    """Return the device that this rank is likely to use: the next one for each rank."""
    if not facts.devices:
        return None
    return facts.devices[(topology.local_rank if topology else 0) % len(facts.devices)]


def _driver() -> str:
    """Return the version of NVIDIA's driver, empty where there is none."""
    try:
        text = DRIVER.read_text()
    except OSError:
        return ""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+[\d.]*)", text)
    return found[1] if found else "of an unknown version"


def _device(runtime: Any, number: int) -> Device:
    known = runtime.getDeviceProperties(number)
    name = known["name"].decode(errors="replace")
    return Device(
        name=name,
        uuid=uuid_of(runtime, number),
        bus=runtime.deviceGetPCIBusId(number),
        gib=round(known["totalGlobalMem"] / 2**30, 1),
        # Of CUDA 13 on the properties do not have it.
        compute_mode=COMPUTE_MODES[
            runtime.deviceGetAttribute(runtime.cudaDevAttrComputeMode, number)
        ],
        mig=" MIG " in name,
    )


def _apart(runtime: Any, count: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of devices without peer access, each once."""
    pairs = [(one, other) for other in range(count) for one in range(other)]
    return tuple(
        pair
        for pair in pairs
        if not all(runtime.deviceCanAccessPeer(*p) for p in (pair, pair[::-1]))
    )


def _nccl(cupy: Any) -> str:
    """Return the version of the NCCL that CuPy has found, empty if it has none."""
    with suppress(Exception):
        nccl = cupy.cuda.nccl
        if nccl.available:
            number = nccl.get_version()
            return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return ""


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number // 10 % 100}" if number else ""


def lines(facts: GpuFacts) -> Iterator[str]:
    """Yield the devices of one process, one a line."""
    for number, device in enumerate(facts.devices):
        mode = device.compute_mode
        mode = "" if mode == "default" else f", compute mode {mode}"
        mig = ", a MIG slice" if device.mig else ""
        yield (
            f"          {number}: {device.name}, {device.gib:g} GiB, {device.uuid} "
            f"at {device.bus}{mode}{mig}"
        )
