"""All ranks open NCCL, or none does and all know why; nobody waits for ever.

NCCL is played by a few lines here. What it does on a GPU is not shown by this file.
"""

import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from harness.threads import WORLDS, outcome, run_ranks

from collectives import BrokenCommunicatorError, CollectiveTimeoutError, DeviceError
from collectives.calls import Call
from collectives.descriptor import Descriptor
from collectives.gpu.facts import Gpus
from collectives.opening_nccl import open_nccl
from collectives.transport import nccl as transport
from collectives.waiting import PeerLost

RAW = bytes(range(255, 127, -1))
"""An id in which every byte is 128 or more."""


class Error(RuntimeError):
    """Stands for `cupy.cuda.nccl.NcclError`."""


class Played:
    """A NCCL for ranks that are threads, whose faults are chosen by the test."""

    NcclError = Error
    NCCL_INT32, NCCL_SUM = 2, 0

    def __init__(self, size, take=bytes):
        self.size, self.take = size, take
        self.meeting = threading.Barrier(size)
        self.ids, self.joined, self.ended = [], [], []
        self.fail = {}
        """What a rank does instead of joining."""
        self.id_error = None
        self.asynchronous = None

    def get_unique_id(self):
        if self.id_error:
            raise self.id_error
        self.ids.append(RAW)
        return {
            bytes: RAW,
            "signed": tuple(b - 256 for b in RAW),
            "unsigned": tuple(RAW),
        }[self.take]

    def NcclCommunicator(self, size, raw, rank):
        if (self.take is bytes) != isinstance(raw, bytes):
            raise TypeError("Argument 'commId' has incorrect type")
        if self.take == "signed" and max(raw) > 127:
            raise OverflowError("value too large to convert to char")
        if self.take == "unsigned" and min(raw) < 0:
            raise OverflowError("can't convert negative value to char")
        assert bytes(number & 255 for number in raw) == RAW
        if rank in self.fail:
            self.fail[rank]()
        try:
            self.meeting.wait(20)
        except threading.BrokenBarrierError:
            raise Error("NCCL_ERROR_REMOTE_ERROR: somebody went") from None
        self.joined.append((size, rank))
        return SimpleNamespace(
            allReduce=lambda *arguments: None,
            destroy=lambda: self.ended.append((rank, "destroy")),
            abort=lambda: self.ended.append((rank, "abort")),
            check_async_error=self.check,
        )

    def check(self):
        if self.asynchronous:
            raise self.asynchronous


class Stream:
    """Stands for `cupy.cuda.Stream`."""

    ptr = 7

    def __init__(self, non_blocking=False):
        self.synchronize = lambda: None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def wait_event(self, event):
        pass


@pytest.fixture
def play(monkeypatch):
    """Return what makes a `Played` the NCCL of this test."""
    monkeypatch.setattr(transport, "SHARED_BYTES", 0)

    def make(size, take=bytes):
        played = Played(size, take)
        cuda = SimpleNamespace(
            Device=nullcontext,
            Stream=Stream,
            get_current_stream=Stream,
            Event=lambda disable_timing: SimpleNamespace(record=lambda: None),
        )
        zero = SimpleNamespace(data=SimpleNamespace(ptr=1))
        module = SimpleNamespace(cuda=cuda, zeros=lambda *_: zero, int32="int32")
        monkeypatch.setattr(transport, "library", lambda: played)
        monkeypatch.setattr(transport, "cupy", lambda: module)
        return played

    return make


def opened(comm):
    """Open NCCL on all ranks; return the group."""
    group = comm._group
    group.gpus = group.gpus or Gpus()

    def barrier(planner):
        def run():
            open_nccl(planner.group, planner.options.timeout_s)

        return Call(Descriptor("barrier"), run)

    comm._submit(barrier)
    return group


@pytest.mark.parametrize("take", [bytes, "signed", "unsigned"])
@pytest.mark.parametrize("world", WORLDS)
def test_all_join_by_the_raw_bytes_of_one_id(play, world, take):
    played = play(3, take)

    def body(comm):
        group = opened(comm)
        assert group.nccl.init_s > 0
        assert not group.gpus.refusals
        comm.close()
        return group.nccl

    assert len(set(map(id, run_ranks(3, body, world)))) == 3
    assert played.ids == [RAW]
    assert sorted(played.joined) == [(3, 0), (3, 1), (3, 2)]
    assert sorted(played.ended) == [(0, "destroy"), (1, "destroy"), (2, "destroy")]


@pytest.mark.parametrize("world", WORLDS)
def test_one_that_cannot_join_releases_the_others_at_once(play, world):
    played = play(3)

    def fail():
        raise Error("NCCL_ERROR_SYSTEM_ERROR: no shared memory")

    played.fail[1] = fail  # and the other two wait in NCCL, for 20 s

    def body(comm):
        group = opened(comm)
        assert group.nccl is None
        assert comm.all_reduce(1) == 3, "nothing is broken"
        return group.gpus.refusals["nccl"]

    start = time.monotonic()
    told = run_ranks(3, body, world)
    assert time.monotonic() - start < 15
    assert len(set(told)) == 1
    assert told[0] == (
        "it cannot be opened: rank 1: Error: NCCL_ERROR_SYSTEM_ERROR: no shared memory"
    )
    played.meeting.abort()


def test_who_is_further_when_another_one_fails_is_not_left_with_it(play):
    """Rank 0 is in its first call, which never ends, when rank 1 fails in its own."""
    played, over = play(2), threading.Event()
    rank_0_is_there = threading.Event()

    def waits(*arguments):
        rank_0_is_there.set()
        over.wait(20)

    def fails(*arguments):
        rank_0_is_there.wait(10)
        raise Error("NCCL_ERROR_INTERNAL_ERROR: late")

    def make(size, raw, rank, join=played.NcclCommunicator):
        comm = join(size, raw, rank)
        comm.allReduce = fails if rank else waits
        return comm

    played.NcclCommunicator = make
    start = time.monotonic()
    told = run_ranks(2, lambda comm: opened(comm).gpus.refusals["nccl"])
    assert time.monotonic() - start < 15
    over.set()
    assert "late" in told[0] and told[0] == told[1]
    assert sorted(played.ended) == [(0, "abort"), (1, "abort")]


def test_an_id_that_cannot_be_made_is_told_to_all(play):
    played = play(2)
    played.id_error = Error("NCCL_ERROR_SYSTEM_ERROR: no interface")
    told = run_ranks(2, lambda comm: opened(comm).gpus.refusals["nccl"])
    assert told == ["it cannot be opened: rank 0: Error: " + str(played.id_error)] * 2
    assert not played.joined


@pytest.mark.parametrize("world", WORLDS)
def test_one_that_gets_stuck_is_a_timeout_that_names_it(play, world):
    """Ranks 0 and 2 are through; for rank 1 NCCL never returns."""
    played = play(3)
    over = threading.Event()
    played.meeting = threading.Barrier(2)
    played.fail[1] = lambda: over.wait(20)

    def body(comm):
        caught = outcome(lambda: opened(comm))
        assert comm._group.broken
        assert type(outcome(lambda: comm.all_reduce(1))) is BrokenCommunicatorError
        return caught

    told = run_ranks(3, body, world, timeout_s=0.3)
    over.set()
    for rank, error in enumerate(told):
        assert type(error) is CollectiveTimeoutError
        if str(error).startswith(f"rank {rank}: NCCL could"):
            assert "within 0.3 s" in str(error)
            assert "ranks [1] have not joined" in str(error)
        else:  # another host's rank gave up first
            assert "has been given up by rank" in str(error)
    assert any("ranks [1] have" in str(error) for error in told)


def test_one_that_never_makes_the_call_is_named_by_it(play):
    play(2)
    over = threading.Barrier(2)

    def body(comm):
        caught = outcome(lambda: opened(comm)) if comm.rank == 0 else None
        over.wait(20)
        return str(caught)

    told = run_ranks(2, body, timeout_s=0.2)
    assert "made no progress for 0.2 s: rank 1 has been in user code" in told[0] or (
        "rank 1 has not started" in told[0]
    )


def test_little_memory_to_share_is_told(play, monkeypatch):
    played = play(1)
    monkeypatch.setattr(transport, "SHARED_BYTES", 1 << 62)

    def fail():
        raise Error("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")

    played.fail[0] = fail
    (told,) = run_ranks(1, lambda comm: opened(comm).gpus.refusals["nccl"])
    assert "unhandled system error; /dev/shm has " in told


def test_an_error_of_a_launch_breaks_the_group_and_ends_nccl(play):
    played = play(1)

    def body(comm):
        group = opened(comm)

        def refuse(nccl, stream):
            raise Error("NCCL_ERROR_INVALID_USAGE: no")

        caught = outcome(lambda: group.nccl.launch("ncclAllReduce", 1, refuse))
        assert type(caught) is DeviceError
        again = outcome(lambda: group.nccl.launch("ncclAllReduce", 1, refuse))
        assert type(again) is BrokenCommunicatorError
        assert str(caught) in str(again)
        return str(caught)

    (told,) = run_ranks(1, body)
    assert told.startswith("rank 0: ncclAllReduce failed in barrier #1: NCCL_ERROR_INV")
    assert played.ended == [(0, "abort")]


def test_what_nccl_finds_out_while_it_works_is_raised(play):
    played = play(1)

    def body(comm):
        group = opened(comm)
        group.nccl.check()
        played.asynchronous = Error("NCCL_ERROR_REMOTE_ERROR: gone")
        return outcome(group.nccl.check)

    (error,) = run_ranks(1, body)
    assert type(error) is DeviceError
    assert "NCCL_ERROR_REMOTE_ERROR: gone" in str(error)
    assert played.ended == [(0, "abort")]


def test_a_dead_process_is_what_an_error_of_nccl_comes_from(play):
    played = play(1)

    def body(comm):
        group = opened(comm)
        group.liveness = SimpleNamespace(dead=lambda: [1], close=lambda: None)
        played.asynchronous = Error("NCCL_ERROR_REMOTE_ERROR: gone")
        return outcome(group.nccl.check)

    (error,) = run_ranks(1, body)
    assert type(error) is PeerLost and error.rank == 1


def test_an_abort_that_gets_stuck_is_left_behind(play, monkeypatch):
    monkeypatch.setattr(transport, "ABORT_S", 0.05)
    over = threading.Event()

    def body(comm):
        group = opened(comm)
        group.nccl._comm.abort = lambda: over.wait(20)
        group.nccl.abort()
        return group.nccl._comm

    play(1)
    assert run_ranks(1, body) == [None]
    over.set()
