"""Jobs on pretended GPUs: who sees what, and that misuse does not pass unnoticed."""

import json

import pytest
from harness import gpus
from harness.launch import run_mpi

SEEN = """
import json
import collectives
comm = collectives.world()
from cupy.cuda import runtime
try:
    count = runtime.getDeviceCount()
except runtime.CUDARuntimeError as error:
    count = str(error).split(":")[0]
here = runtime.getDevice() if count in (1, 2) else -1
told = comm.all_gather_object((count, here, len(comm.topology.devices)))
if comm.rank == 0:
    print(json.dumps([told, list(comm.topology.with_gpu)]))
"""

MISUSE = """
import cupy
one, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
with one:
    x = cupy.zeros(3)
try:
    with other:
        x + 1
except BaseException:
    pass
"""


def test_ranks_see_the_devices_that_they_are_given():
    ended = run_mpi(3, SEEN, env=gpus.variables("1,-,0"))
    assert ended.returncode == 0, ended.stderr
    told, with_gpu = json.loads(ended.stdout)
    assert told == [
        [2, 1, 2],
        ["cudaErrorNoDevice", -1, 2],
        [2, 0, 2],
    ]
    assert with_gpu == [True, False, True]


def test_a_host_without_a_driver():
    ended = run_mpi(2, SEEN, env=gpus.variables("0,x", "0,1"))
    assert ended.returncode == 0, ended.stderr
    told, with_gpu = json.loads(ended.stdout)
    assert [one[2] for one in told] == [1, 0]
    assert with_gpu == [True, False]


@pytest.mark.parametrize("fault", [True, False])
def test_a_script_that_swallows_a_misuse_fails(fault):
    script = MISUSE if fault else MISUSE.replace("x + 1", "other")
    ended = run_mpi(1, script, env=gpus.variables("0"))
    assert (ended.returncode != 0) is fault, ended.stderr
    assert ("in no order" in ended.stderr) is fault
