import pytest
from harness.launch import run_mpi

RINGFOLD = "import sys; from collectives.cli import main; sys.exit(main())"


def ringfold(ranks, text, **options):
    return run_mpi(ranks, RINGFOLD, args=text.split(), **options)


def ours(text):
    """Keep our own lines: launchers add a report of their own to a failed job."""
    return [line for line in text.splitlines() if line.startswith("ringfold")]


def test_bench_prints_one_table_and_succeeds():
    done = ringfold(2, "bench all_reduce -b 1K -e 8K -f 8 --algorithm mpi,auto,ring")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("# Out of bounds values : 0 OK") == 1
    rows = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [row.split()[0] for row in rows] == ["1024"] * 3 + ["8192"] * 3


def test_bench_of_the_gradients_of_a_model():
    done = ringfold(2, "bench all_reduce_many -n 1 -w 0 --repetitions 1")
    assert done.returncode == 0, done.stderr
    assert "161 arrays of resnet50, 25557032 elements" in done.stdout
    rows = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [row.split()[0] for row in rows] == [str(4 * 25557032)] * 2


def test_bench_of_overlap():
    done = ringfold(2, "bench reduce --overlap -b 1K -e 8K -f 8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Overlap(%)") == 1
    rows = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [row.split()[0] for row in rows] == ["1024"] * 2 + ["8192"] * 2


def test_bench_of_a_strategy(tmp_path):
    shapes = tmp_path / "shapes.json"
    shapes.write_text("[[64, 3], [64], [10, 64], [10]]")
    done = ringfold(2, f"bench strategy -n 3 --pack-bytes 1000 --shapes {shapes}")
    assert done.returncode == 0, done.stderr
    rows = [
        line.split() for line in done.stdout.splitlines() if not line.startswith("#")
    ]
    assert [row[0] for row in rows[:3]] == ["plain", "registered", "update"]
    assert all(float(time) > 0 for row in rows[:3] for time in row[1:])
    packs = [(int(nbytes), float(at), float(until)) for nbytes, at, until in rows[3:]]
    assert sum(nbytes for nbytes, _, _ in packs) == 4 * (64 * 3 + 64 + 640 + 10)
    assert len(packs) == 2
    assert all(at <= until for _, at, until in packs)
    assert [at for _, at, _ in packs] == sorted(at for _, at, _ in packs)
    wrong = ringfold(2, "bench strategy -n 0")
    assert wrong.returncode == 2
    assert ours(wrong.stderr) == ["ringfold: error: steps is 0; wanted 1 or more"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "bench all_reduce --algorithm rnig",
            "unknown algorithm 'rnig'; all_reduce has:",
        ),
        ("bench broadcast -r 2", "-r 2 is not a rank; there are 2 ranks"),
        (
            "bench all_reduce_many --shapes no.json",
            "'no.json' is no model and cannot be read",
        ),
        ("bench send --overlap", "send by 'mpi' cannot be started"),
        (
            "bnech",
            "'bnech' is no command and no file; wanted bench, bench strategy, tune",
        ),
    ],
)
def test_a_usage_error_is_printed_once_and_is_status_2(text, message):
    done = ringfold(2, text)
    assert done.returncode == 2
    (line,) = ours(done.stderr)
    assert message in line
    assert "Traceback" not in done.stderr


def test_help_is_printed_once():
    done = ringfold(2, "bench --help")
    assert done.returncode == 0
    assert done.stdout.count("usage: ringfold bench") == 1


SCRIPT = """
import os, sys
from collectives.cli import main
victim = f"victim{os.getpid()}.py"
open(victim, "w").write('''
import sys, time
import collectives
comm = collectives.world()
if comm.rank == 1:
    {failure}
comm.barrier()
time.sleep(60)
''')
sys.exit(main([victim]))
"""


@pytest.mark.parametrize(
    ("failure", "message"),
    [("raise KeyError('lost')", "KeyError: 'lost'"), ("sys.exit(3)", "")],
)
def test_a_script_that_fails_on_one_rank_ends_the_job(failure, message):
    done = run_mpi(2, SCRIPT.replace("{failure}", failure), timeout=30)
    assert done.returncode != 0
    assert message in done.stderr
