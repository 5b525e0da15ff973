"""Arrays in the memory of GPUs: what they are, their streams, pinned memory, facts.

CuPy is imported once there is a device array, and never before. What moves such arrays
lies where its counterpart for host arrays does: transport/, algorithms/, calls/. The
names below are public.
"""

from collectives.gpu.arrays import cupy, device_view, on_device
from collectives.gpu.local import local_refusal, local_sums
from collectives.gpu.visible import visible_devices

__all__ = [
    "cupy",
    "device_view",
    "local_refusal",
    "local_sums",
    "on_device",
    "visible_devices",
]
