"""The names of `cupy.cuda.runtime`, with CuPy's arguments."""

# ruff: noqa: F401, F403
from cupy._allocations import (
    PointerAttributes,
    free,
    freeHost,
    hostAlloc,
    hostRegister,
    hostUnregister,
    ipcCloseMemHandle,
    ipcGetMemHandle,
    ipcOpenMemHandle,
    malloc,
    pointerGetAttributes,
    pointerGetMemoryType,
)
from cupy._constants import *
from cupy._copies import (
    memcpy,
    memcpyAsync,
    memcpyPeer,
    memcpyPeerAsync,
    memset,
    memsetAsync,
)
from cupy._devices import (
    _deviceEnsurePeerAccess,
    deviceCanAccessPeer,
    deviceDisablePeerAccess,
    deviceEnablePeerAccess,
    deviceGetAttribute,
    deviceGetByPCIBusId,
    deviceGetPCIBusId,
    deviceSynchronize,
    driverGetVersion,
    getDevice,
    getDeviceCount,
    getDeviceProperties,
    memGetInfo,
    runtimeGetVersion,
    setDevice,
)
from cupy._handles import (
    eventCreate,
    eventCreateWithFlags,
    eventDestroy,
    eventElapsedTime,
    eventQuery,
    eventRecord,
    eventSynchronize,
    launchHostFunc,
    streamCreate,
    streamCreateWithFlags,
    streamCreateWithPriority,
    streamDestroy,
    streamGetFlags,
    streamGetPriority,
    streamQuery,
    streamSynchronize,
    streamWaitEvent,
)
