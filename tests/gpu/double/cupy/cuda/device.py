"""Devices by number."""

import threading
from typing import Any

from cupy.cuda import runtime

_stack = threading.local()


class Device:
    def __init__(self, device: Any = None) -> None:
        self.id = runtime.getDevice() if device is None else int(device)

    @classmethod
    def from_pci_bus_id(cls, pci_bus_id: str) -> "Device":
        return cls(runtime.deviceGetByPCIBusId(pci_bus_id))

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> "Device":
        before = runtime.getDevice()
        runtime.setDevice(self.id)
        self._before().append(before)
        return self

    def __exit__(self, *args: object) -> None:
        runtime.setDevice(self._before().pop())

    @staticmethod
    def _before() -> list[int]:
        if not hasattr(_stack, "devices"):
            _stack.devices = []
        return _stack.devices  # type: ignore[no-any-return]

    def use(self) -> "Device":
        runtime.setDevice(self.id)
        return self

    def synchronize(self) -> None:
        with self:
            runtime.deviceSynchronize()

    @property
    def compute_capability(self) -> str:
        return "90"

    @property
    def pci_bus_id(self) -> str:
        return runtime.deviceGetPCIBusId(self.id)

    @property
    def mem_info(self) -> tuple[int, int]:
        with self:
            return runtime.memGetInfo()

    @property
    def attributes(self) -> dict[str, int]:
        return {
            name.removeprefix("cudaDevAttr"): runtime.deviceGetAttribute(
                number, self.id
            )
            for name, number in vars(runtime).items()
            if name.startswith("cudaDevAttr")
        }


def get_device_id() -> int:
    return runtime.getDevice()
