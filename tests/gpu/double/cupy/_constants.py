"""The runtime's numbers, and its error."""

from typing import Any

is_hip = False
memcpyHostToHost, memcpyHostToDevice = 0, 1
memcpyDeviceToHost, memcpyDeviceToDevice, memcpyDefault = 2, 3, 4
memoryTypeUnregistered, memoryTypeHost = 0, 1
memoryTypeDevice, memoryTypeManaged = 2, 3
cudaMemoryTypeHost, cudaMemoryTypeDevice = 1, 2
streamDefault, streamNonBlocking = 0, 1
streamLegacy, streamPerThread = 1, 2
eventDefault, eventBlockingSync, eventDisableTiming, eventInterprocess = 0, 1, 2, 4
hostAllocDefault, hostAllocPortable, hostAllocMapped, hostAllocWriteCombined = (
    0,
    1,
    2,
    4,
)
cudaIpcMemLazyEnablePeerAccess = 1
errorInvalidValue, errorMemoryAllocation, errorNotReady = 1, 2, 600
errorPeerAccessAlreadyEnabled = 704
errorHostMemoryAlreadyRegistered, errorHostMemoryNotRegistered = 712, 713
cudaDevAttrUnifiedAddressing = 41
cudaDevAttrMultiProcessorCount = 16
cudaDevAttrPciBusId, cudaDevAttrPciDeviceId, cudaDevAttrPciDomainId = 33, 34, 50
cudaDevAttrComputeMode = 20

ERRORS = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    3: ("cudaErrorInitializationError", "initialization error"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    201: ("cudaErrorDeviceUninitialized", "invalid device context"),
    217: ("cudaErrorPeerAccessUnsupported", "peer access is not supported"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("cudaErrorNotReady", "device not ready"),
    704: ("cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"),
    705: ("cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"),
    712: ("cudaErrorHostMemoryAlreadyRegistered", "already registered"),
    713: ("cudaErrorHostMemoryNotRegistered", "pointer is not registered"),
    801: ("cudaErrorNotSupported", "operation not supported"),
}


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__("{}: {}".format(*ERRORS[status]))

    def __reduce__(self) -> Any:
        return (type(self), (self.status,))
