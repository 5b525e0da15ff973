"""`scripts/hosts.sh` itself: hosts are machines of their own, and leave nothing."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from harness.hosts import hosts_up
from harness.launch import HOSTS


def traces(prefix):
    """Return what there is of hosts: a folder, processes, links, mounts."""
    folder = Path(f"/tmp/hosts-{prefix}")
    found = [str(folder)] if folder.exists() else []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"HOSTS_PREFIX={prefix}".encode() in path.read_bytes().split(b"\0"):
                found.append((path.parent / "cmdline").read_bytes().decode())
        except OSError:
            continue  # it has ended meanwhile
    links = subprocess.run(["ip", "link"], capture_output=True, text=True).stdout
    found += [word for word in links.split() if word.startswith(("port", "bridge:"))]
    mounts = Path("/proc/mounts").read_text().splitlines()
    found += [line for line in mounts if prefix in line]
    return found


def test_a_host_is_a_machine_of_its_own():
    with hosts_up(2) as hosts:
        names = [hosts("exec", host, "hostname").strip() for host in ("1", "node2")]
        assert names == ["node1", "node2"]
        hosts("exec", "1", "touch", "/dev/shm/mine")
        assert hosts("exec", "1", "ls", "/dev/shm") == "mine\n"
        assert hosts("exec", "2", "ls", "/dev/shm") == ""
        assert hosts("exec", "1", "ssh", "node2", "hostname") == "node2\n"
        processes = hosts("exec", "2", "ps", "-e", "-o", "args=")
        assert processes.count("[listener]") == 1
        assert "node1" in hosts("status")


def test_a_rate_and_a_cable_that_is_pulled():
    with hosts_up(2, "1gbit") as hosts:
        assert "rate 1Gbit" in hosts("exec", "2", "tc", "qdisc", "show", "dev", "eth0")
        hosts("link", "2", "100mbit")
        assert "100Mbit" in hosts("exec", "2", "tc", "qdisc", "show", "dev", "eth0")
        hosts("link", "2", "down")
        ssh = ["ssh", "-o", "ConnectTimeout=1", "node2", "true"]
        with pytest.raises(AssertionError, match="timed out"):
            hosts("exec", "1", *ssh)
        hosts("link", "2", "up")
        hosts("exec", "1", *ssh)


@pytest.mark.parametrize("how", ["down", "SIGKILL"])
def test_nothing_is_left(how):
    with hosts_up(2) as hosts:
        assert len(traces(hosts.prefix)) > 3
        # A process that nobody waits for, as a launcher leaves it on a far host.
        hosts("exec", "2", "sh", "-c", "sleep 600 >/dev/null 2>&1 &")
        if how == "SIGKILL":
            room = int(Path(f"/tmp/hosts-{hosts.prefix}/room.pid").read_text())
            os.kill(room, signal.SIGKILL)
            assert "no hosts are up" in _refusal("exec", "1", "true")
        hosts("down")
        assert traces(hosts.prefix) == []


REFUSALS = {
    ("up", "2"): "2 hosts are up already",
    ("up", "none"): "wanted 1 to 99",
    ("exec", "3", "true"): "there is no host 3; up are: node1 node2",
    ("run", "--mpi", "nompi", "--", "true"): "nompi",
    ("sideways",): "usage: ",
}


def test_what_cannot_be_done_is_an_error_that_says_why():
    with hosts_up(2):
        for words, text in REFUSALS.items():
            assert text in _refusal(*words)
        assert "1gbits" in _refusal("link", "1", "1gbits")


def _refusal(*words):
    ended = subprocess.run([HOSTS, *words], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    return ended.stderr
