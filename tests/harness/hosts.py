"""Several hosts for one test, made by `scripts/hosts.sh`."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.launch import HOSTS

TOOLS = ("ip", "tc", "unshare", "nsenter", "ssh", "ssh-keygen", "sshd")


def obstacle() -> str:
    """Return why no hosts can be made here; empty when they can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "making hosts needs root"
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    return f"making hosts needs {' '.join(lacking)}" if lacking else ""


class Hosts:
    """What a test does with the hosts, beside running jobs with `run_mpi`."""

    def __init__(self, prefix: str, count: int) -> None:
        self.prefix, self.count = prefix, count

    def __call__(self, *words: str) -> str:
        """Run `scripts/hosts.sh` with these words; return what it prints."""
        ended = subprocess.run(
            [HOSTS, *words],
            env={**os.environ, "HOSTS_PREFIX": self.prefix},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def ranks_left(self) -> list[str]:
        """Return what is still running of a job's ranks, on any host, as it settles."""
        end = time.monotonic() + 10
        while True:
            lines = [
                f"node{host}: {line}"
                for host in range(1, self.count + 1)
                for line in self("exec", str(host), "ps", "-eo", "args=").splitlines()
                # A launcher's line names the program as well; a rank's begins with it.
                if Path(line.split()[0]).name.startswith("python")
            ]
            if not lines or time.monotonic() > end:
                return lines
            time.sleep(0.2)

    @contextmanager
    def when(self, file: Path, act: Callable[[], object]) -> Iterator[None]:
        """Inside, wait in the background for a file to appear, then act."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.02):
                if file.exists():
                    act()
                    return

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def hosts_up(count: int, rate: str = "none") -> Iterator[Hosts]:
    """Make hosts under a prefix of this process; jobs find them by the environment."""
    hosts = Hosts(f"test{os.getpid()}", count)
    os.environ["HOSTS_PREFIX"] = hosts.prefix
    hosts("down")  # of a test that was killed, under the same process id
    try:
        hosts("up", str(count), "--rate", rate)
        yield hosts
    finally:
        hosts("down")
        del os.environ["HOSTS_PREFIX"]
