"""The runtime's functions on devices."""

import threading
from typing import Any

from cupy import _engine
from cupy._blocks import Block
from cupy._config import CONFIG
from cupy._constants import (
    CUDARuntimeError,
    cudaDevAttrComputeMode,
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrPciBusId,
    cudaDevAttrPciDeviceId,
    cudaDevAttrPciDomainId,
    cudaDevAttrUnifiedAddressing,
    errorPeerAccessAlreadyEnabled,
)

blocks: dict[int, Block] = {}
"""What has been allocated, by address."""
_local = threading.local()
_main = threading.get_ident()
_peers: set[tuple[int, int]] = set()


def driverGetVersion() -> int:
    return 13000


def runtimeGetVersion() -> int:
    return 12090


def getDeviceCount() -> int:
    if not CONFIG.visible:
        raise CUDARuntimeError(100)
    return len(CONFIG.visible)


def getDevice() -> int:
    getDeviceCount()
    if not hasattr(_local, "device"):
        # The runtime begins with device 0 in each thread; the first thread of a rank is
        # taken to have chosen its device already.
        _local.device = CONFIG.first if threading.get_ident() == _main else 0
    return int(_local.device)


def setDevice(device: int) -> None:
    _known(device)
    _local.device = device


def _known(device: int) -> None:
    if not 0 <= device < getDeviceCount():
        raise CUDARuntimeError(101)


def deviceSynchronize() -> None:
    device = getDevice()
    for queue in [q for q in _engine.QUEUES.values() if q.device == device]:
        _engine.synchronize(_engine.mark(queue))


def getDeviceProperties(device: int) -> dict[str, Any]:
    _known(device)
    return {
        "name": b"Test double",
        "uuid": CONFIG.uuid(device),
        "totalGlobalMem": 16 << 30,
        "multiProcessorCount": 4,
        "pciBusID": CONFIG.visible[device] + 1,
        "pciDeviceID": 0,
        "pciDomainID": CONFIG.host,
        "major": 9,
        "minor": 0,
        "computeMode": 0,
        "unifiedAddressing": 1,
        "asyncEngineCount": 2,
        "integrated": 0,
        "memoryBusWidth": 5120,
        "memoryClockRate": 1000000,
        "canMapHostMemory": 1,
    }


def deviceGetAttribute(attribute: int, device: int) -> int:
    properties = getDeviceProperties(device)
    known = {
        cudaDevAttrUnifiedAddressing: 1,
        cudaDevAttrMultiProcessorCount: properties["multiProcessorCount"],
        cudaDevAttrPciBusId: properties["pciBusID"],
        cudaDevAttrPciDeviceId: 0,
        cudaDevAttrPciDomainId: properties["pciDomainID"],
        cudaDevAttrComputeMode: 0,
    }
    return int(known.get(attribute, 0))


def deviceGetPCIBusId(device: int) -> str:
    properties = getDeviceProperties(device)
    return f"{properties['pciDomainID']:04X}:{properties['pciBusID']:02X}:00.0"


def deviceGetByPCIBusId(pci_bus_id: str) -> int:
    for device in range(getDeviceCount()):
        if deviceGetPCIBusId(device) == pci_bus_id:
            return device
    raise CUDARuntimeError(101)


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
    _known(device)
    _known(peerDevice)
    return int(device != peerDevice and "peer" not in CONFIG.lacks)


def deviceEnablePeerAccess(peerDevice: int) -> None:
    if not deviceCanAccessPeer(getDevice(), peerDevice):
        raise CUDARuntimeError(217 if peerDevice != getDevice() else 101)
    if (getDevice(), peerDevice) in _peers:
        raise CUDARuntimeError(errorPeerAccessAlreadyEnabled)
    _peers.add((getDevice(), peerDevice))


def deviceDisablePeerAccess(peerDevice: int) -> None:
    if (getDevice(), peerDevice) not in _peers:
        raise CUDARuntimeError(705)
    _peers.remove((getDevice(), peerDevice))


def _deviceEnsurePeerAccess(peerDevice: int) -> None:
    _peers.add((getDevice(), peerDevice))


def memGetInfo() -> tuple[int, int]:
    device = getDevice()
    used = sum(block.size for block in blocks.values() if block.device == device)
    return (16 << 30) - used, 16 << 30
