"""The Python parts of scripts/compare_peers.sh that need no peer."""

import json
import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).parents[2] / "scripts" / "peers"

BODY = """
import sys
sys.path.insert(0, {peers!r})
from timing import bytes_of, measure, run

def body(rank, ranks, sizes, shapes, folder):
    if {fails!r} and rank == 1:
        sys.exit("rank 1 has no network")
    seconds = {{str(n): measure(n, lambda: None, lambda: None) for n in sizes}}
    return seconds | {{"shapes": [0.25 + rank, 0.5], "bytes": [bytes_of(shapes)] * 2}}

run(lambda: "nothing at all", body)
"""


def time_a_peer(tmp_path, fails=False):
    script = tmp_path / "peer.py"
    script.write_text(BODY.format(peers=str(PEERS), fails=fails))
    shapes = tmp_path / "shapes.json"
    shapes.write_text('{"shapes": [[2, 3], {"repeat": 2, "shapes": [[5]]}]}')
    command = [sys.executable, script, "--sizes", "1024,67108864"]
    command += ["--shapes", shapes, "--output", tmp_path / "peer.json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_peer_takes_as_long_as_its_slowest_rank(tmp_path):
    done = time_a_peer(tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "peer.json").read_text())
    assert found["title"] == "nothing at all"
    assert list(found["rows"]) == ["1024", "67108864", "shapes", "bytes"]
    assert found["rows"]["shapes"] == {"min": 0.5e6, "median": 0.875e6}
    assert found["rows"]["bytes"]["min"] == 4 * 16 * 1e6


def test_a_rank_that_fails_ends_the_others(tmp_path):
    done = time_a_peer(tmp_path, fails=True)
    assert done.returncode == 1
    assert "rank 1 has no network" in done.stderr
    assert not (tmp_path / "peer.json").exists()


def document(rows):
    return {
        "ringfold": "0.1.0",
        "mpi": "MPICH 5.0.2",
        "memory": ["fast", "slow"],
        "rows": [
            {"algorithm": name, "bytes": nbytes, "time_us": {"median": us}}
            for name, nbytes, us in rows
        ],
    }


def table(folder):
    return subprocess.run(
        [sys.executable, PEERS / "table.py", folder], capture_output=True, text=True
    )


def test_one_table_of_all_that_was_measured(tmp_path):
    sized = [("mpi", 1024, 2.0), ("auto", 1024, 4.0), ("mpi", 1 << 26, 30e3)]
    files = {
        "mpich": document([*sized, ("auto", 1 << 26, 10e3)]),
        "mpich-shapes": document([("mpi", 7, 9.0), ("auto", 7, 6.0)]),
        "impi": document(sized),  # whose list of arrays failed
        "gloo": {"title": "gloo 1", "rows": {"1024": {"min": 5.0, "median": 40.0}}},
    }
    for name, text in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(text))
    done = table(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "memory: fast" in done.stdout
    head, *rows = done.stdout.splitlines()[-4:]
    assert head.split() == ["all_reduce", "ours", "mpich", "gloo"]
    assert [row.split() for row in rows] == [
        ["1", "KiB", "4.0", "2.0", "(0.50)", "40.0", "(10.00)"],
        ["64", "MiB", "10000", "30000", "(3.00)", "N/A"],
        ["ResNet-50", "6.0", "9.0", "(1.50)", "N/A"],
    ]


def test_without_any_figure_there_is_no_table(tmp_path):
    done = table(tmp_path)
    assert (done.returncode, done.stderr) == (1, "nothing was measured\n")
