"""What counts as a device array, and that asking is cheap."""

import subprocess
import sys

QUESTION = """
import sys
import numpy as np
import collectives
from collectives.gpu.arrays import on_device

class Device:
    def __dlpack_device__(self):
        return 2, 0

class Host(Device):
    def __dlpack_device__(self):
        return 1, 0

class Other:
    __cuda_array_interface__ = {"shape": (1,)}

values = (np.ones(2), [1.0], 3, None, np.float32(1), Host(), Device(), Other())
print([on_device(value) for value in values])
comm = collectives.world()
for value in values[:3]:
    comm.all_reduce(value)
print([name for name in ("cupy", "cupyx", "torch", "jax") if name in sys.modules])
"""


def test_asking_for_device_arrays_imports_nothing():
    asked = subprocess.run(
        [sys.executable, "-c", QUESTION], capture_output=True, text=True, check=True
    )
    assert asked.stdout.splitlines() == [
        str([False] * 6 + [True] * 2),
        "[]",
    ]
