"""Whether the MPI underneath may be given pointers to the memory of a GPU.

Proved for each operation, by two witnesses that must agree: what the library says of
itself, and a program of two ranks that does it (`probe.py`). An MPI that says yes may
still crash, and one that was built for it may be told at run time not to. The program
is a child, so that a crash is an answer and not the end of the job.

The child's ranks share a host: this says nothing about what the MPI does with device
memory across hosts. What was found is kept in a file of the user's cache folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from collectives.gpu.probe import OPERATIONS, REDUCTIONS
from collectives.launcher import clean_environment

Proof = dict[str, str]
"""Why an operation may not be given device pointers, by MPI's name of it; empty where
it may."""

START_S, OPERATION_S = 60.0, 30.0
"""Patience until the child's ranks have met, and then with each operation."""
GRACE_S, POLL_S = 5.0, 0.05

NOT_STARTED = "the probe could not start"

CUDA = 0  # MPIX_GPU_SUPPORT_CUDA

# Each MPI's own launcher, beside its library, and what keeps it on this host.
LAUNCH: dict[str, tuple[str, tuple[str, ...]]] = {
    "MPICH": ("mpirun", ("-launcher", "fork", "-hosts", "localhost")),
    "Open MPI": ("mpirun", ("--host", "localhost:2", "--bind-to", "none")),
    "Intel MPI": ("mpiexec.hydra", ("-launcher", "fork", "-hosts", "localhost")),
}
SETTINGS = {
    "Open MPI": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
}

# By these a launcher would look for the hosts of a batch job; the child has only one.
BATCH = ("COBALT_", "FLUX_", "LSB_", "PBS_", "PE_HOSTFILE", "SLURM_")

# Variables by which an MPI is told what to do with device memory.
STEERING = (
    "CUDA_",
    "FI_",
    "I_MPI_",
    "MPICH_",
    "MPIR_CVAR_",
    "MV2_",
    "OMPI_MCA_",
    "UCX_",
)


def library() -> Path | None:
    """Return the file of the MPI library that is loaded; None where none is."""
    try:
        text = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    found = re.search(r" (/.*/libmpi(?:_abi|_cray|_gnu\w*)?\.so[^/\n]*)$", text, re.M)
    return Path(found[1]) if found else None


def word(path: Path | None) -> str:
    """Return why the library says no; empty if it says yes. MPI is initialized."""
    if path is None:
        return "no MPI library is loaded"
    loaded, asked = ctypes.CDLL(str(path)), []
    with suppress(AttributeError):
        asked.append(bool(loaded.MPIX_Query_cuda_support()))
    with suppress(AttributeError):
        answer = ctypes.c_int(0)
        loaded.MPIX_GPU_query_support(CUDA, ctypes.byref(answer))
        asked.append(bool(answer.value))
    if any(asked):
        return ""
    return "the MPI library says that it is not" if asked else "the MPI does not say"


def prove(vendor: str, version: str) -> Proof:
    """Return what both witnesses say, the child's answer from the cache if it can.

    Args:
        vendor: the MPI's name; empty without one.
        version: what it says of itself.

    Takes some seconds the first time that an MPI says yes, and up to a minute or two
    for one that hangs. Not collective: one rank of a host calls it, and `agreed` makes
    one answer of all.
    """
    path = library()
    if not vendor or path is None:
        return dict.fromkeys(OPERATIONS, "there is no MPI")
    no = word(path)
    if no:
        return dict.fromkeys(OPERATIONS, no)
    kept = cache_file(version, path)
    with suppress(OSError, ValueError):
        known = json.loads(kept.read_text(encoding="utf-8"))["refused"]
        if known.keys() == OPERATIONS.keys():
            return dict(known)
    proof = probe(vendor, path)
    if not any(why.startswith(NOT_STARTED) for why in proof.values()):
        _keep(kept, proof)  # the next time it may start
    return proof


def agreed(everyones: Sequence[Proof | None]) -> Proof:
    """Return what holds on all hosts, from what their ranks found; None of the others.

    The first refusal, in the order of ranks, stands for all of them.
    """
    found = [(rank, proof) for rank, proof in enumerate(everyones) if proof is not None]

    def refusal(operation: str) -> str:
        reasons = [(rank, proof[operation]) for rank, proof in found]
        return next((f"{why} (rank {rank})" for rank, why in reasons if why), "")

    return {operation: refusal(operation) for operation in OPERATIONS}


def summary(proof: Proof) -> str:
    """Say in a line what was proved: `yes`, `no: …`, or which operations."""
    reasons = {why for why in proof.values() if why}
    if not reasons:
        return "yes, proved"
    fine = [operation for operation, why in proof.items() if not why]
    if fine:
        return f"proved for {' '.join(fine)}"
    return f"no: {reasons.pop()}" if len(reasons) == 1 else "no"


def cache_file(version: str, path: Path) -> Path:
    """Return where the answer is kept for this host, library, driver and settings."""
    import cupy

    known = {
        "host": os.uname().nodename,
        "library": [str(path), version, path.stat().st_mtime_ns],
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "cupy": [cupy.__file__, cupy.__version__],
        "python": sys.executable,
        "settings": {
            name: value
            for name, value in sorted(clean_environment().items())
            if name.startswith(STEERING)
        },
    }
    digest = hashlib.blake2b(json.dumps(known).encode(), digest_size=12).hexdigest()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "ringfold" / f"cuda-aware-{digest}.json"


def _keep(path: Path, proof: Proof) -> None:
    """Write a file that is complete whenever it is there; or none, if that fails."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps({"refused": proof}, indent=1), encoding="utf-8")
        draft.replace(path)


def probe(vendor: str, path: Path, operations: Sequence[str] = ()) -> Proof:
    """Make the operations in children, whatever the library says; return the answer.

    Each child goes on where the one before it was ended.
    """
    left, proof = list(operations or OPERATIONS), Proof()
    launch = _command(vendor, path)
    while left:
        found, ending = _child(launch, left)
        ranks = found.pop(0).get("ranks", 0) if found else 0
        if launch and ranks != 2:
            launch = []  # that launcher is not this library's, or may not start here
            continue
        if not ranks:
            return proof | dict.fromkeys(left, f"{NOT_STARTED}: {ending}")
        for line in found:
            name, why = line["operation"], line["wrong"]
            if not why and ranks == 1 and name in REDUCTIONS:
                why = "one process reduces nothing, and two could not be started"
            proof[name] = why and f"MPI_{name} of device memory: {why}"
        left = left[len(found) :]
        if left:
            name = left.pop(0)
            proof[name] = f"MPI_{name} of device memory: the probe {ending}"
    return proof


def _command(vendor: str, path: Path) -> list[str]:
    """Return how two ranks are started by what belongs to a library; may be empty."""
    if vendor not in LAUNCH:
        return []
    name, flags = LAUNCH[vendor]
    beside = [str(folder / "bin") for folder in path.parents[1:3]]
    program = shutil.which(name, path=os.pathsep.join(beside)) or shutil.which(name)
    return [program, *flags, "-n", "2"] if program else []


def _child(launch: list[str], operations: list[str]) -> tuple[list[Any], str]:
    """Run one child; return the lines of its report, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="ringfold-") as folder:
        report, errors = Path(folder, "report"), Path(folder, "errors")
        report.touch()
        program = [sys.executable, "-m", "collectives.gpu.probe", str(report)]
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [*launch, *program, *operations],
                cwd=folder,
                env=_environment(launch),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                ending = _wait(process, report)
            finally:
                _end(process)
        lines = report.read_text(encoding="utf-8").split("\n")[:-1]
        last = errors.read_text(errors="replace").strip().split("\n")[-1][:200]
    return [json.loads(line) for line in lines], f"{ending} {last}".strip()


def _environment(launch: list[str]) -> Mapping[str, str]:
    """Return the variables of a child, which is no rank of ours."""
    ours = {
        name: value
        for name, value in clean_environment().items()
        if not name.startswith(BATCH)
    }
    source = str(Path(__file__).parents[2])
    paths = [*filter(None, [ours.get("PYTHONPATH")]), source]
    ours["PYTHONPATH"] = os.pathsep.join(paths)
    if launch:  # Intel's launcher finds its parts by PATH alone
        folder = str(Path(launch[0]).parent)
        ours["PATH"] = os.pathsep.join([folder, ours.get("PATH", os.defpath)])
        for settings in SETTINGS.values():
            ours |= settings
    return ours


def _wait(process: subprocess.Popen[bytes], report: Path) -> str:
    """Wait for the end of a child, or for its silence; say which."""
    size, since = 0, time.monotonic()
    while process.poll() is None:
        time.sleep(POLL_S)
        grown = report.stat().st_size
        if grown != size:
            size, since = grown, time.monotonic()
        patience = OPERATION_S if size else START_S
        if time.monotonic() - since > patience:
            return f"did not come back within {patience:g} s;"
    status = process.returncode
    if -status in {number.value for number in signal.Signals}:
        return f"was ended by {signal.Signals(-status).name};"
    return f"ended with status {status};"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever is left of it."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
