"""The flight recorder: what is noted, and what comes of it when a call fails."""

import json
import sys
import threading
import time

import numpy as np
import pytest
from harness.threads import outcome, run_ranks

from collectives import (
    CollectiveTimeoutError,
    Communicator,
    InvalidArgumentError,
    MismatchError,
    Options,
    recorder,
    tracefile,
)
from collectives.group import Group
from collectives.recorder import CALLS_KEPT, Members, Recorder
from collectives.topology import single_host
from collectives.tracefile import TraceFile, contents
from collectives.transport.loopback import alone


@pytest.fixture
def here(monkeypatch):
    """Give this process a fresh recorder."""
    fresh = Recorder()
    monkeypatch.setattr(recorder, "here", fresh)
    return fresh


@pytest.fixture
def file(here, monkeypatch):
    """Give this process a fresh trace file."""
    fresh = TraceFile(here)
    monkeypatch.setattr(tracefile, "here", fresh)
    yield fresh
    fresh.stop()


@pytest.fixture
def comm(here):
    return Communicator(Group(alone(), single_host(0, 1)), Options())


def calls(here):
    return contents(here, "asked")["calls"]


def line_of(text):
    """Return the number of the one line of this file that ends with a mark."""
    with open(__file__, encoding="utf-8") as file:
        (line,) = [n for n, own in enumerate(file, 1) if own.rstrip().endswith(text)]
    return line


def test_a_call_is_noted_with_what_it_is_and_who_made_it(comm, here):
    comm.all_reduce(np.ones((2, 3), np.float32), "max")  # (A)
    (call,) = calls(here)
    assert (call["sequence"], call["call"], call["state"]) == (1, "all_reduce", "done")
    assert call["fields"]["shape"] == (2, 3)
    assert call["fields"]["dtype"] == "float32"
    assert call["fields"]["op"] == "max"
    assert call["fields"]["algorithm"]
    assert (call["file"], call["line"]) == (__file__, line_of("# (A)"))
    assert call["function"] == "test_a_call_is_noted_with_what_it_is_and_who_made_it"
    assert call["end_ns"] >= call["start_ns"] > 1e18, "wall-clock time"


def test_the_place_is_the_callers_also_of_a_call_in_the_background(comm, here):
    comm.start_all_reduce(1.0).wait()  # (B)
    for call in calls(here):  # making their group, and the call itself
        assert (call["file"], call["line"]) == (__file__, line_of("# (B)"))
    groups = contents(here, "asked")["groups"].values()
    assert [group["background"] for group in groups].count(True) == 1


def test_the_place_is_the_callers_also_through_the_strategies(here):
    import strategy

    one = strategy.MultiWorkerMirroredStrategy()
    here.notes.clear()
    one.reduce(strategy.ReduceOp.SUM, np.ones(3), axis=None)  # (C)
    assert calls(here)
    for call in calls(here):
        assert (call["file"], call["line"]) == (__file__, line_of("# (C)"))


def test_the_place_of_a_program_with_more_files_than_are_remembered(comm, here):
    for number in range(recorder.FILES_KEPT + 10):
        code = compile("comm.barrier()", f"cell {number}", "exec")
        exec(code, {"comm": comm})
        assert calls(here)[-1]["file"] == f"cell {number}"


def test_only_the_latest_calls_are_kept(comm, here):
    for _ in range(CALLS_KEPT + 5):
        comm.barrier()
    told = contents(here, "asked")
    numbers = [call["sequence"] for call in told["calls"]]
    assert numbers == list(range(6, CALLS_KEPT + 6))
    assert not told["complete"]


def test_a_call_that_fails_is_noted_with_the_reason(comm, here):
    with pytest.raises(InvalidArgumentError) as caught:
        comm.broadcast(np.ones(3), root=7)
    (call,) = calls(here)
    assert call["state"] == "failed"
    assert call["why"] == f"InvalidArgumentError: {caught.value}"
    assert not getattr(caught.value, "__notes__", []), "a caller's own mistake"


def test_messages_between_two_ranks_are_noted_with_the_peers(here):
    def body(comm):
        comm.exchange([(1 - comm.rank, np.ones(2), np.ones(2))])
        comm.barrier()

    run_ranks(2, body)
    noted = sorted((call["call"], call["peers"]) for call in calls(here)[:2])
    assert noted == [("exchange", [0]), ("exchange", [1])]
    assert [(c["call"], c["peers"]) for c in calls(here)[2:]] == [("barrier", None)] * 2


def last_calls_told(error, capsys):
    if sys.version_info < (3, 11):  # no notes there
        return capsys.readouterr().err
    return "\n".join(error.__notes__)


def test_an_error_carries_the_latest_calls(here, capsys):
    def body(comm):
        comm.barrier()
        wrong = np.ones(2 + comm.rank)
        return outcome(lambda: comm.all_reduce(wrong))

    for error in run_ranks(2, body):
        assert type(error) is MismatchError
        told = last_calls_told(error, capsys)
        assert "last calls of rank 0: " in told
        assert "barrier #1 done (test_recorder.py:" in told
        assert "all_reduce #2 failed (test_recorder.py:" in told


def test_a_folder_gets_a_file_when_a_call_fails(file, tmp_path):
    over = threading.Barrier(2)

    def body(comm):
        caught = None if comm.rank else outcome(comm.barrier)
        over.wait(20)
        return caught

    file.folder = str(tmp_path / "new" / "folder")
    error, _ = run_ranks(2, body, timeout_s=0.2)
    assert type(error) is CollectiveTimeoutError
    (path,) = (tmp_path / "new" / "folder").iterdir()
    assert path.name == "ringfold-rank-0.json"
    told = json.loads(path.read_text())
    assert told["reason"] == "barrier #1 failed"
    assert told["calls"][-1]["why"].startswith("CollectiveTimeoutError: ")


def test_a_folder_gets_a_file_while_nothing_fails(comm, file, tmp_path):
    comm.with_options(trace=str(tmp_path)).barrier()
    deadline = time.monotonic() + 20
    told = {"calls": []}
    while not told["calls"]:
        assert time.monotonic() < deadline, "nothing was written"
        told = json.loads((tmp_path / "ringfold-rank-0.json").read_text())
    assert told["reason"] == "still running"
    assert told["calls"][0]["call"] == "barrier"


def test_a_file_of_an_earlier_job_is_replaced_at_once(comm, file, tmp_path):
    (tmp_path / "ringfold-rank-0.json").write_text("old")
    file.write_to(str(tmp_path))
    told = json.loads((tmp_path / "ringfold-rank-0.json").read_text())
    assert told["reason"] == "just started"


def test_a_folder_that_will_not_do_is_one_warning(comm, file, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    file.folder = str(tmp_path / "file")
    for _ in range(3):
        file.write("asked")
    comm.barrier()
    err = capsys.readouterr().err
    assert err.startswith("ringfold: rank 0 cannot write its trace: ")
    assert err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_dump_on_demand_says_when_it_cannot_be_written(comm, file, tmp_path):
    comm.barrier()
    path = comm.dump_trace(tmp_path)
    assert json.loads(path.read_text())["reason"] == "asked"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        comm.dump_trace(path)


def test_a_forked_child_writes_nothing(comm, file, tmp_path):
    file.folder = str(tmp_path)
    file.stop()
    comm.barrier()
    file.write("asked")
    assert not list(tmp_path.iterdir())


def test_members_of_derived_groups_have_keys_that_only_they_share():
    world = Members((0, 1, 2, 3), "")
    on_two_ranks = [world.some([1, 3], 1), world.some([1, 3], 1)]
    assert on_two_ranks[0] == on_two_ranks[1]
    assert on_two_ranks[0].ranks == (1, 3)
    nested = on_two_ranks[0].some([1], 1)
    assert nested.ranks == (3,)
    others = [world.some([3, 1], 1), world.some([1, 3], 2), nested, world]
    assert len({m.key for m in (*others, on_two_ranks[0])}) == 5
    assert str(on_two_ranks[0]) == "group [1, 3]"


def test_groups_have_the_same_key_on_all_members_and_no_other():
    def body(comm):
        made = [comm.group([0, 2]), comm.group([0, 2]), comm.split(comm.rank % 2)]
        return [None if not group else group._group.members for group in (comm, *made)]

    zero, one, two = run_ranks(3, body)
    assert zero == two
    assert one[0] == zero[0]
    assert one[3].ranks == (1,)
    keys = [members.key for members in (*zero, one[3])]
    assert len(set(keys)) == len(keys)


def test_a_long_list_of_ranks_is_short():
    assert recorder.short_list(range(3)) == "[0, 1, 2]"
    assert recorder.short_list(range(64)) == "[0, 1, 2, 3, 4, 5, 6, 7, … 63]"
