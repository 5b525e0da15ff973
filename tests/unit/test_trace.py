"""`ringfold trace` on files that tell known stories."""

import json

import pytest

from collectives.trace import main
from collectives.tracefile import FORMAT

S = 1_000_000_000
NOW = 1_800_000_000 * S  # when the files were written
WORLD, PAIR = "w", "p"


def call(
    number, name="all_reduce", state="done", group=WORLD, why="", ago_s=60.0, **more
):
    """Return a call that began `number - 60` seconds before the files were written."""
    start = NOW - int(ago_s * S) + number * S
    fields = {"collective": name, "dtype": "float32", "shape": [10]}
    ended = state in ("done", "failed")
    return {
        "group": group,
        "sequence": number,
        "call": name,
        "text": f"{name}(float32, shape (10,))",
        "fields": fields,
        "peers": None,
        "state": state,
        "why": why,
        "start_ns": start,
        "end_ns": start + S // 2 if ended else 0,
        "thread": 1,
        "file": "/home/ada/train.py",
        "line": 10 + number,
        "function": "step",
        **more,
    }


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Return a function that writes the files of a job: calls by rank."""
    monkeypatch.setattr("time.time_ns", lambda: NOW + S)

    def write(calls_of, size=None, **more):
        for rank, calls in calls_of.items():
            groups = {WORLD: {"ranks": [0, 1, 2], "background": False}}
            if any(one["group"] == PAIR for one in calls):
                groups[PAIR] = {"ranks": [0, 1], "background": False}
            contents = {
                "format": FORMAT,
                "ringfold": "0",
                "rank": rank,
                "size": size or len(calls_of),
                "host": "laptop",
                "pid": rank,
                "reason": "still running",
                "written_ns": NOW,
                "complete": True,
                "groups": groups,
                "calls": calls,
                **more,
            }
            path = tmp_path / f"ringfold-rank-{rank}.json"
            path.write_text(json.dumps(contents))
        return str(tmp_path)

    return write


def trace(capsys, *arguments):
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def rows(out):
    """Return the lines of the tables, split where there are two blanks or more."""
    return [
        [cell.strip() for cell in line.strip().split("  ") if cell.strip()]
        for line in out.splitlines()
        if line.startswith("  rank") and "  " in line.strip()
    ]


def test_ranks_that_agree_do_not_diverge(job, capsys):
    folder = job({rank: [call(1), call(2, "barrier")] for rank in range(3)})
    status, out, err = trace(capsys, folder)
    assert (status, err) == (0, "")
    assert "3 of 3 ranks have written a file" in out
    assert "group [0, 1, 2]: no divergence; the last common call is barrier(" in out
    assert "done, at train.py:12 in step" in out


def test_one_rank_that_did_not_come(job, capsys):
    timeout = "CollectiveTimeoutError: rank 1 has been in user code"
    failed = [call(1), call(2), call(3, state="failed", why=timeout)]
    folder = job({0: failed, 1: [call(1), call(2)], 2: failed})
    status, out, _ = trace(capsys, folder)
    assert status == 1
    assert "group [0, 1, 2]: the ranks part at call #3" in out
    assert "last common call is all_reduce(float32, shape (10,)), done, at train" in out
    there, absent = rows(out)
    text = "all_reduce(float32, shape (10,))"
    assert there == ["ranks 0 2", "failed", text, "0.50 s", "train.py:13 in step"]
    assert absent == [
        "rank 1",
        "absent",
        "after all_reduce #2",
        "57.50 s ago",
        "train.py:12 in step",
    ]
    assert "ahead: ranks 0 2; behind: rank 1" in out
    assert f"rank 0 said: {timeout}" in out


def test_a_rank_in_another_call(job, capsys):
    """The first difference counts, and not what became of it."""
    folder = job(
        {
            0: [call(1), call(2), call(3)],
            1: [call(1), call(2, "broadcast"), call(3)],
            2: [call(1), call(2), call(3)],
        }
    )
    status, out, _ = trace(capsys, folder)
    assert status == 1
    assert "part at call #2" in out
    assert [row[:3] for row in rows(out)] == [
        ["ranks 0 2", "done", "all_reduce(float32, shape (10,))"],
        ["rank 1", "done", "broadcast(float32, shape (10,))"],
    ]


def test_a_rank_with_another_shape(job, capsys):
    other = call(2, state="failed", why="MismatchError: the ranks disagree on shape")
    other["fields"] = {**other["fields"], "shape": [11]}
    mine = call(2, state="failed", why="MismatchError: the ranks disagree on shape")
    folder = job({0: [call(1), mine], 1: [call(1), other], 2: [call(1), mine]})
    status, out, _ = trace(capsys, folder)
    assert status == 1
    assert "rank 0 said: MismatchError" in out


def test_an_error_that_all_made_alike_is_no_divergence(job, capsys):
    wrong = call(1, state="failed", why="UnsupportedError: mean of strings")
    folder = job({rank: [wrong, call(2)] for rank in range(3)})
    assert trace(capsys, folder)[0] == 0


def test_ranks_that_wait_for_each_other_in_two_groups(job, capsys):
    cycle = "MismatchError: the ranks wait for each other"
    pair = call(1, "reduce", "failed", PAIR, cycle, line=77)
    parent = call(2, "barrier", "failed", why=cycle, line=88)
    folder = job({0: [call(1), pair], 1: [call(1), parent], 2: [call(1), parent]})
    status, out, _ = trace(capsys, folder)
    assert status == 1
    assert "group [0, 1, 2]: the ranks part at call #2" in out
    assert "group [0, 1]: the ranks part at call #1" in out
    assert (
        "rank 0 meanwhile: failed reduce #1 of group [0, 1] at train.py:77 in step"
        in out
    )
    assert "rank 1 meanwhile: failed barrier #2 of group [0, 1, 2] at train" in out


def test_a_rank_in_a_message_is_behind_and_the_message_is_shown(job, capsys):
    receiving = call(1, "recv", "started", peers=[2], fields={})
    waiting = [call(1), call(2, state="started")]
    folder = job({0: waiting, 1: [call(1), receiving], 2: waiting})
    status, out, _ = trace(capsys, folder)
    assert status == 1
    assert "rank 1 meanwhile: started recv with 2 of group [0, 1, 2] at train" in out


def test_a_file_that_is_only_older_proves_nothing(job, capsys):
    folder = job({0: [call(1), call(2)], 1: [call(1)], 2: [call(1), call(2)]})
    assert trace(capsys, folder)[0] == 0


@pytest.mark.parametrize(
    ("ago_s", "age_s", "status"), [(2.2, 1, 0), (2.2, 60, 1), (4.0, 1, 1)]
)
def test_a_call_under_way(job, capsys, monkeypatch, ago_s, age_s, status):
    """It has parted the ranks if it took long, or if the rank died inside it."""
    monkeypatch.setattr("time.time_ns", lambda: NOW + age_s * S)
    inside = [call(1), call(2, state="started", ago_s=ago_s)]
    folder = job({0: inside, 1: [call(1)], 2: inside})
    got, out, _ = trace(capsys, folder)
    assert got == status
    expected = "the ranks part at call #2" if status else "no divergence for sure; "
    assert expected in out
    inside, outside = rows(out)
    assert inside[:2] == ["ranks 0 2", "started"]
    assert outside[:2] == ["rank 1", "absent"]


def test_a_call_that_has_only_begun_is_known_by_its_name(job, capsys):
    begun = call(2, state="started", fields={}, text="all_reduce", ago_s=2.1)
    folder = job({0: [call(1), begun], 1: [call(1), call(2, state="agreed")]}, size=2)
    assert trace(capsys, folder)[0] == 0


def test_calls_that_a_rank_has_forgotten_are_not_missing(job, capsys):
    long = [call(n) for n in range(1, 50)]
    folder = job({0: long, 1: long[20:], 2: long}, complete=False)
    assert trace(capsys, folder)[0] == 0


def test_a_group_that_a_rank_has_forgotten_altogether(job, capsys):
    busy = [call(n) for n in range(1, 50)]
    lost = call(1, state="failed", group=PAIR, why="PeerFailedError: rank 1 died")
    folder = job({0: [*busy, lost], 1: busy, 2: busy}, complete=False)
    status, out, _ = trace(capsys, folder)
    assert status == 1
    assert ["rank 1", "forgotten"] in rows(out)


def test_a_rank_without_a_file_is_named(job, capsys):
    died = [call(1), call(2, state="failed", why="PeerFailedError: rank 2 died")]
    folder = job({0: died, 1: died}, size=3)
    status, out, _ = trace(capsys, folder)
    assert status == 1
    assert "2 of 3 ranks have written a file; none is there of rank 2" in out
    assert ["rank 2", "no file"] in rows(out)


def test_json_says_the_same(job, capsys):
    failed = [call(1), call(2, state="failed", why="CollectiveTimeoutError: late")]
    folder = job({0: failed, 1: [call(1)], 2: failed})
    status, out, _ = trace(capsys, folder, "--json")
    (group,) = json.loads(out)
    assert status == 1
    assert group["ranks"] == [0, 1, 2]
    assert (group["diverges"], group["sequence"]) == (True, 2)
    assert (group["ahead"], group["behind"]) == ([0, 2], [1])
    assert [row["state"] for row in group["rows"]] == ["failed", "absent", "failed"]
    assert group["common"]["call"] == "all_reduce(float32, shape (10,))"


def test_a_timeline_of_all_ranks(job, capsys, tmp_path):
    calls = [call(1), call(2, state="started", group=PAIR)]
    folder = job({0: calls, 1: calls, 2: [call(1)]})
    file = tmp_path / "timeline.json"
    file.write_text("[")
    trace(capsys, folder, "--chrome", str(file))
    events = json.loads(file.read_text())["traceEvents"]
    made = [event for event in events if event["ph"] == "X"]
    assert sorted(event["pid"] for event in made) == [0, 0, 1, 1, 2]
    assert min(event["ts"] for event in made) == 0
    assert {event["dur"] for event in made} == {0.5e6, 58e6}
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {f"rank {r} on laptop" for r in range(3)} | {
        "group [0, 1]",
        "group [0, 1, 2]",
    }


def test_single_files_can_be_given(job, capsys, tmp_path):
    job({rank: [call(1)] for rank in range(3)})
    files = [str(tmp_path / f"ringfold-rank-{rank}.json") for rank in (2, 0)]
    status, out, _ = trace(capsys, *files)
    assert status == 0
    assert "2 of 3 ranks" in out


def test_what_is_no_trace_is_one_line_and_status_2(job, capsys, tmp_path):
    folder = job({0: [call(1)], 1: [call(1)]})
    bad = {
        "nothing": str(tmp_path / "nothing"),
        "empty": str(tmp_path / "empty"),
        "not json": str(tmp_path / "ringfold-rank-0.json.txt"),
        "other json": str(tmp_path / "other.json"),
    }
    (tmp_path / "empty").mkdir()
    (tmp_path / "ringfold-rank-0.json.txt").write_text("[")
    (tmp_path / "other.json").write_text('{"format": 99}')
    for path in bad.values():
        status, out, err = trace(capsys, path)
        assert (status, out) == (2, ""), path
        assert err.startswith("ringfold: error: ")
        assert err.count("\n") == 1
        assert path in err
    assert trace(capsys)[0] == 2
    assert trace(capsys, folder, "--frob")[0] == 2


def test_files_of_two_jobs_are_refused(job, capsys):
    job({0: [call(1)], 1: [call(1)], 2: [call(1)], 3: [call(1)]})
    folder = job({0: [call(1)], 1: [call(1)]})
    status, _, err = trace(capsys, folder)
    assert status == 2
    assert "of different jobs" in err
    assert "of 2 ranks" in err
    assert "of 4" in err


def test_two_files_of_one_rank_are_refused(job, capsys, tmp_path):
    folder = job({0: [call(1)], 1: [call(1)]})
    copy = tmp_path / "copy.json"
    copy.write_text((tmp_path / "ringfold-rank-1.json").read_text())
    status, _, err = trace(capsys, folder, str(copy))
    assert status == 2
    assert "are both of rank 1" in err
