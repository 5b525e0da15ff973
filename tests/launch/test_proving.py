"""The probe of an MPI with device pointers: a crash, a hang, wrong bytes: answers."""

import json

import pytest
from harness.launch import run_mpi

# Host memory in the place of a device's, which every MPI may be given; and an MPI that
# does something to one operation, as it looks from the program that calls it.
CUPY = """
import os, signal, sys, time, types
import numpy as np

__version__ = "0"

class ndarray(np.ndarray):
    def get(self):
        return np.array(self)

def asarray(x):
    frame, callers = sys._getframe(1), set()
    while frame:
        callers.add(frame.f_code.co_name)
        frame = frame.f_back
    operation, _, fault = os.environ.get("FAULT", "").partition(":")
    if operation in callers:
        FAULTS[fault]()
        if fault == "wrong":
            x = x + 1
    return np.array(x).view(ndarray)

FAULTS = {
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": lambda: time.sleep(60),
    "wrong": lambda: None,
    "refuse": lambda: 1 / 0,
}
stream = types.SimpleNamespace(synchronize=lambda: None)
cuda = types.SimpleNamespace(
    get_current_stream=lambda: stream,
    Device=lambda index: types.SimpleNamespace(use=lambda: None),
    runtime=types.SimpleNamespace(
        getDeviceCount=lambda: 1, driverGetVersion=lambda: 13000
    ),
)
"""

START = """
import json, os, pathlib
pathlib.Path("cupy").mkdir(exist_ok=True)
pathlib.Path("cupy/__init__.py").write_text(CUPY)
path = [os.getcwd(), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
from mpi4py import MPI
from collectives.gpu import proving
from collectives.topology import mpi_facts
proving.OPERATION_S = 8.0
vendor, path = mpi_facts().vendor, proving.library()
mpi = vendor, mpi_facts().library
"""


def answer(script: str, fault: str = "") -> object:
    """Return what rank 0 of a job of two prints last, while the other one waits."""
    text = f"CUPY = {CUPY!r}\n{START}" + (
        "if MPI.COMM_WORLD.rank == 0:\n"
        + "".join(f"    {line}\n" for line in script.strip().splitlines())
        + "MPI.COMM_WORLD.Barrier()\n"
    )
    ended = run_mpi(2, text, timeout=100, env={"FAULT": fault})
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


ASK = "print(json.dumps(proving.probe(vendor, path, OPERATIONS)))"


def test_what_the_mpi_can_do_is_proved_by_two_ranks():
    proof = answer(ASK.replace("OPERATIONS", "()"))
    assert "Alltoallv" in proof and "Allreduce" in proof
    assert not any(proof.values()), proof


@pytest.mark.parametrize(
    ("fault", "says"),
    [("crash", "the probe"), ("hang", "8 s"), ("wrong", "wrong"), ("refuse", "Zero")],
)
def test_an_mpi_that_cannot_is_found_out_and_the_rest_is_proved(fault, says):
    ask = ASK.replace("OPERATIONS", "('Send', 'Gatherv', 'Allreduce')")
    proof = answer(ask, f"gather:{fault}")
    assert says in proof.pop("Gatherv")
    assert proof == {"Send": "", "Allreduce": ""}


def test_one_process_proves_no_reduction():
    ask = ASK.replace("OPERATIONS", "('Send', 'Reduce')")
    proof = answer(f"proving.LAUNCH.clear()\n{ask}")
    assert proof["Send"] == ""
    assert "one process" in proof["Reduce"]


def test_the_answer_is_kept_and_asked_for_once():
    kept = answer(
        """
os.environ["XDG_CACHE_HOME"] = os.getcwd()
proving.word = lambda path: ""
first = proving.prove(*mpi)
proving.probe = None  # from now on there is only the file
print(json.dumps([first, proving.prove(*mpi)]))
"""
    )
    assert kept[0] == kept[1]
    assert not any(kept[0].values())


def test_what_the_library_denies_is_not_tried():
    refused = answer(
        """
proving.probe = None
print(json.dumps(proving.prove(*mpi)))
"""
    )
    assert set(refused.values()) == {"the MPI library says that it is not"}
