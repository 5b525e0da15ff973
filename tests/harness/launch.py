"""Start programs under the MPI that is installed beside this Python.

The only place that knows which flags and variables each MPI wants here. A test calls
`run_mpi`; a shell says ``python tests/harness/launch.py RANKS PROGRAM [ARGUMENTS]``,
where RANKS is a number, or how many on which host: ``node1:2,node2:1``. With
``--gpus 0,0,1`` after it the ranks are on pretended devices (gpus.py).
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

if __package__:
    from harness import gpus
else:  # as a program
    import gpus

BIN = Path(sys.prefix) / "bin"
HOSTS = Path(__file__).parents[2] / "scripts" / "hosts.sh"
SHM = Path("/dev/shm")

# Variables with these prefixes make a program believe that it is a rank.
RANK_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PRTE_", "HYDRA_", "HYDI_", "MPI_LOCAL")

# Open MPI gives ranks on other hosts only what it is told to; the others give them all.
PASSED_ON = ("PYTHONPATH", "PATH", "RINGFOLD_", "CUPY_DOUBLE_")

# After SIGTERM a launcher needs this long to end ranks that do not listen.
GRACE_S = 5.0


@dataclass(frozen=True)
class Launcher:
    """What one MPI needs so that any number of ranks runs on any machine."""

    name: str
    package: str
    program: str = "mpirun"
    flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    hostfile: str = "-f"
    host_line: str = "{host}:{ranks}"
    pass_on: str = ""
    """What gives one more variable to ranks on other hosts, where that is needed."""


# No MPI may bind ranks to cores here: two jobs at once would share the first cores.
LAUNCHERS = (
    Launcher("mpich", "mpich"),
    Launcher(
        "openmpi",
        "openmpi",
        # osc/ucx prints an error line on machines without such a network.
        flags=("--oversubscribe", "--bind-to", "none", "--mca", "osc", "^ucx"),
        variables={
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
        hostfile="--hostfile",
        host_line="{host} slots={ranks}",
        pass_on="-x",
    ),
    Launcher(
        "impi",
        "impi-rt",
        # mpirun is a script around this one, and grumbles at spaces in its path.
        program="mpiexec.hydra",
        variables={"I_MPI_PIN": "0"},
        hostfile="-machinefile",  # with -f it fills the cores of each host
    ),
)


def installed() -> Launcher:
    """Return the launcher of the one MPI in this environment."""
    names = {dist.name for dist in metadata.distributions()}
    found = [row for row in LAUNCHERS if row.package in names]
    if len(found) != 1:
        raise RuntimeError(
            f"found {len(found)} MPI packages in {sys.prefix}; wanted exactly one of "
            + ", ".join(row.package for row in LAUNCHERS)
        )
    return found[0]


def command(ranks: int | str, program: Sequence[str]) -> list[str]:
    """Return the command that runs `program` on `ranks` ranks, or "HOST:RANKS,…"."""
    launcher = installed()
    flags = list(launcher.flags)
    if isinstance(ranks, str):
        places = [place.split(":") for place in ranks.split(",")]
        flags += [launcher.hostfile, _hostfile(launcher, places)]
        if launcher.pass_on:
            names = sorted(name for name in os.environ if name.startswith(PASSED_ON))
            flags += [word for name in names for word in (launcher.pass_on, name)]
        ranks = sum(int(count) for _, count in places)
    return [str(BIN / launcher.program), *flags, "-n", str(ranks), *program]


def _hostfile(launcher: Launcher, places: Sequence[Sequence[str]]) -> str:
    """Return the path of a hostfile, which is a descriptor's and so leaves nothing."""
    lines = [launcher.host_line.format(host=h, ranks=n) for h, n in places if n != "0"]
    file = os.memfd_create("hostfile", 0)
    os.write(file, "".join(f"{line}\n" for line in lines).encode())
    return f"/proc/self/fd/{file}"


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for `command`: ours without any that mark a rank."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(RANK_PREFIXES)
    }
    path = f"{BIN}{os.pathsep}{ours.get('PATH', os.defpath)}"
    return {**ours, **installed().variables, "PATH": path, **(extra or {})}


class StillRunningError(AssertionError):
    """A launcher that had not ended in time."""


def run_mpi(
    ranks: int | str,
    script: str,
    *,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    args: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run the Python text `script` on `ranks` ranks, in an empty folder.

    `ranks` may be how many on each of the hosts that are up, as in "2,1,2".
    Returns the launcher's exit status and texts, whatever they are. A job that has not
    ended after `timeout` seconds is killed, and is a StillRunningError with its output.
    """
    before = set(SHM.glob("*"))
    with tempfile.TemporaryDirectory(prefix="ringfold-test-") as folder:
        path = Path(folder) / "script.py"
        path.write_text(script, encoding="utf-8")
        job = _job(ranks, [sys.executable, str(path), *args])
        # Files, not pipes: a rank that outlives its launcher keeps a pipe open, and
        # whoever reads it waits for that rank.
        with open(f"{folder}/out", "w+b") as out, open(f"{folder}/err", "w+b") as err:
            process = subprocess.Popen(
                job,
                cwd=folder,
                env=environment(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                process.wait(timeout)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
            finally:
                _kill_group(process)
                _sweep(before)
            texts = [_text(out), _text(err)]
    if not ended:
        raise StillRunningError(
            f"{shlex.join(job)} had not ended after {timeout:g} s\n"
            f"stdout:\n{texts[0]}\nstderr:\n{texts[1]}"
        )
    return subprocess.CompletedProcess(job, process.returncode, *texts)


def _job(ranks: int | str, program: Sequence[str]) -> list[str]:
    """Return the command for ranks here, or on the hosts of `scripts/hosts.sh`."""
    if isinstance(ranks, int):
        return command(ranks, program)
    how = ["run", "--ranks", ranks, "--mpi", installed().name, "--"]
    return ["env", f"HOSTS_ENV={sys.prefix}", str(HOSTS), *how, *program]


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """End the launcher and whatever is left of its process group."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _sweep(before: set[Path]) -> None:
    """Remove what a killed job left in shared memory, which is small in a container."""
    # Imported here: the command line of this file needs only the standard library.
    from collectives.doctor.memory import leftovers

    for name in leftovers(SHM, older_than_s=0):
        if SHM / name not in before:
            (SHM / name).unlink(missing_ok=True)


def _text(file) -> str:
    """Return all that was written to a binary file."""
    file.seek(0)
    return file.read().decode(errors="replace")


def main(arguments: Sequence[str]) -> None:
    """Replace this process by the launcher, after printing its command line."""
    extra = {}
    if arguments[1:2] == ["--gpus"] and len(arguments) > 3:
        extra = gpus.variables(arguments[2])
        arguments = [arguments[0], *arguments[3:]]
    if len(arguments) < 2 or not (arguments[0].isdigit() or ":" in arguments[0]):
        sys.exit(
            "usage: launch.py RANKS|HOST:RANKS,... [--gpus 0,0,1] PROGRAM [ARGUMENTS]"
        )
    ranks = int(arguments[0]) if arguments[0].isdigit() else arguments[0]
    job = command(ranks, arguments[1:])
    print("+", shlex.join(job), flush=True)
    os.execve(job[0], job, environment(extra))


if __name__ == "__main__":
    main(sys.argv[1:])
