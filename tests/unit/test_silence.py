"""A rank that does not come: a deadline, names, and a communicator that is broken."""

import threading

import numpy as np
import pytest
from harness.threads import WORLDS, outcome, run_ranks

from collectives import (
    BrokenCommunicatorError,
    CollectiveError,
    CollectiveTimeoutError,
    PeerFailedError,
)
from collectives.waiting import GAP_S

SOON = 0.2

CALLS = {
    "all_reduce": lambda comm: comm.all_reduce(np.ones(3)),
    "reduce": lambda comm: comm.reduce(np.ones(3)),
    "broadcast": lambda comm: comm.broadcast(np.ones(3)),
    "all_gather": lambda comm: comm.all_gather(np.ones(3)),
    "all_reduce_many": lambda comm: comm.all_reduce_many([np.ones(3)]),
    "barrier": lambda comm: comm.barrier(),
    "broadcast_object": lambda comm: comm.broadcast_object(1),
    "all_gather_object": lambda comm: comm.all_gather_object(1),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", CALLS)
def test_a_rank_that_does_not_come_is_a_timeout_on_all_others(world, name):
    over = threading.Barrier(3)

    def body(comm):
        comm.barrier()
        caught = None
        if comm.rank != 1:
            caught = outcome(lambda: CALLS[name](comm))
        over.wait(20)
        return caught

    first, absent, last = run_ranks(3, body, world, timeout_s=SOON)
    assert absent is None
    for rank, caught in ((0, first), (2, last)):
        assert type(caught) is CollectiveTimeoutError
        text = str(caught)
        assert text.startswith(f"rank {rank}: {name}")
        assert "#2 made no progress for 0.2 s: " in text


def test_who_is_missing_is_named_with_what_it_was_last_seen_doing():
    over = threading.Barrier(4)

    def body(comm):
        comm.barrier()
        text = ""
        if comm.rank not in (1, 3):
            text = str(outcome(lambda: comm.all_reduce(np.ones(3))))
        over.wait(20)
        return text

    told = run_ranks(4, body, timeout_s=SOON)
    for text in (told[0], told[2]):
        assert "all_reduce(float64, sum, shape (3,), shared) #2" in text
        for rank in (1, 3):
            assert f"rank {rank} has been in user code for " in text
        assert text.count("after barrier #1") == 2
        assert "rank 0 has" not in text
        assert "rank 2 has" not in text


def test_who_is_missing_is_named_on_every_host():
    """Ranks 0 2 4 are on one host, 1 3 on the other; 1 and 2 do not come."""
    over = threading.Barrier(5)

    def body(comm):
        comm.barrier()
        text = ""
        if comm.rank not in (1, 2):
            text = str(outcome(comm.barrier))
        over.wait(20)
        return text

    told = run_ranks(5, body, "two hosts", timeout_s=1)
    for rank in (0, 3, 4):
        for absent in (1, 2):
            assert f"rank {absent} has been in user code for" in told[rank]
        for other in {0, 3, 4} - {rank}:
            assert f"rank {other} " not in told[rank].partition(": barrier #2 ")[2]


def test_a_host_that_does_not_answer_is_named():
    over = threading.Barrier(5)

    def body(comm):
        text = ""
        if comm.rank not in (1, 3):
            text = str(outcome(comm.barrier))
        over.wait(20)
        return text

    told = run_ranks(5, body, "two hosts", timeout_s=SOON)
    for rank in (0, 2, 4):
        assert told[rank].endswith(
            ": no answer from rank 1, rank 3 on host1: busy, dead, or cut off"
        )


def test_who_has_given_up_takes_the_others_along():
    """Only rank 0 has a short deadline; the others do not wait for theirs."""
    over = threading.Barrier(5)

    def body(comm):
        comm = comm.with_options(timeout_s=SOON if comm.rank == 0 else 60)
        text = "" if comm.rank == 3 else str(outcome(comm.barrier))
        over.wait(20)
        return text

    told = run_ranks(5, body, "two hosts", timeout_s=60)
    assert "barrier #1 made no progress for 0.2 s" in told[0]
    for rank in (1, 2, 4):
        assert f"rank {rank}: barrier #1 has been given up by rank " in told[rank]
    for rank in (0, 1, 2, 4):
        assert "rank 3 has" in told[rank]


def test_a_peer_that_is_elsewhere_says_where():
    over = threading.Barrier(2)

    def body(comm):
        here = np.zeros(3)
        text = str(outcome(lambda: comm.recv(here, 1 - comm.rank)))
        over.wait(20)
        return text

    told = run_ranks(2, body, "no board", timeout_s=SOON)
    assert any(f"rank {1 - rank} is in recv" in told[rank] for rank in (0, 1))


def test_where_nothing_is_shared_nobody_is_said_to_have_arrived():
    over = threading.Barrier(2)

    def body(comm):
        text = "" if comm.rank else str(outcome(comm.barrier))
        over.wait(20)
        return text

    text, _ = run_ranks(2, body, "no board", timeout_s=SOON)
    assert "#1 made no progress for 0.2 s: " in text
    assert "has arrived" not in text


@pytest.mark.parametrize("world", WORLDS)
def test_after_a_timeout_the_communicator_says_that_it_is_broken(world):
    over = threading.Barrier(2)

    def body(comm):
        caught = []
        if comm.rank == 0:
            caught = [
                outcome(comm.barrier),
                outcome(lambda: comm.all_reduce(1.0)),
                outcome(comm.with_options(timeout_s=5).barrier),
            ]
        over.wait(20)
        return caught

    (first, *later), _ = run_ranks(2, body, world, timeout_s=SOON)
    assert type(first) is CollectiveTimeoutError
    for error in later:
        assert type(error) is BrokenCommunicatorError
        assert str(error).startswith("rank 0: this communicator cannot be used any")
        assert str(first) in str(error), "it must say why"


@pytest.mark.parametrize("world", ["one board", "two hosts"])
def test_a_rank_that_comes_late_but_in_time_is_waited_for(world):
    late = threading.Event()

    def body(comm):
        if comm.rank == 1:
            late.wait(0.3)
        return comm.all_reduce(1.0).item()

    assert run_ranks(3, body, world, timeout_s=20 + GAP_S) == [3.0] * 3


@pytest.mark.parametrize(
    ("world", "size"),
    [("one board", 2), ("one board", 4), ("no board", 2), ("two hosts", 2)],
)
def test_a_rank_that_has_closed_is_a_failed_peer_and_not_a_timeout(world, size):
    """Rank 1 closes while the others make a call."""
    left = threading.Event()

    def body(comm):
        comm.barrier()
        if comm.rank != 1:
            left.wait(20)
            return outcome(lambda: comm.all_reduce(np.ones(3)))

        def close():
            left.set()
            closing.told = outcome(comm.close)

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        closing.join(10)  # it may hang, the test may not
        return closing

    first, closing, *others = run_ranks(size, body, world, timeout_s=2)
    for told in (first, *others):
        assert type(told) is PeerFailedError
        assert "rank 1 left the job" in str(told)
    assert not closing.is_alive(), "close() must not wait for ever"
    assert isinstance(closing.told, CollectiveError), closing.told


@pytest.mark.parametrize("world", WORLDS)
def test_who_all_close_have_closed(world):
    def body(comm):
        with comm as same:
            assert same is comm
            comm.barrier()
        comm.close()
        caught = outcome(lambda: comm.all_reduce(1.0))
        assert type(caught) is BrokenCommunicatorError
        return str(caught)

    for rank, text in enumerate(run_ranks(3, body, world)):
        assert text == (
            f"rank {rank}: this communicator cannot be used any more: it was closed"
        )


def test_an_error_inside_with_does_not_wait_for_the_others():
    def body(comm):
        try:
            with comm:
                raise KeyError(comm.rank)
        except KeyError:
            return "fine"

    assert run_ranks(2, body) == ["fine"] * 2


def test_two_threads_on_one_communicator_are_refused():
    inside, refused = threading.Event(), threading.Event()
    told = []

    def body(comm):
        def second_thread():
            inside.wait(20)
            told.append(outcome(lambda: comm.all_reduce(np.ones(2))))
            refused.set()

        if comm.rank == 1:
            refused.wait(20)
            comm.barrier()
            return comm.all_reduce(1.0).item()
        other = threading.Thread(target=second_thread)
        other.start()
        threading.Timer(0.1, inside.set).start()
        comm.barrier()
        other.join()
        return comm.all_reduce(1.0).item()

    assert run_ranks(2, body) == [2.0, 2.0], "the communicator must be usable again"
    (error,) = told
    assert isinstance(error, CollectiveError)
    assert str(error) == (
        "rank 0: another thread is inside barrier on this communicator; "
        "use one communicator a thread"
    )


def test_floating_point_trouble_is_no_error_on_one_rank_only():
    """The result says inf or NaN; raising half-way would leave the others behind."""

    def body(comm):
        x = np.array([3e38, np.inf if comm.rank else -np.inf], np.float32)
        narrow = np.array([60000.0], np.float16)
        with np.errstate(all="raise"):
            return [
                comm.all_reduce(x, algorithm=algorithm).tolist()
                for algorithm in ("ring", "recursive_doubling")
            ] + [comm.all_reduce(narrow).tolist()]

    for told in run_ranks(3, body, timeout_s=2):
        for total, nan in told[:2]:
            assert total == np.inf
            assert np.isnan(nan)
        assert told[2] == [np.inf]


def test_an_interrupted_call_breaks_the_communicator():
    """Nobody knows how far the others got: to go on would be to mix up two calls."""
    over = threading.Barrier(2)

    def body(comm):
        caught = None
        if comm.rank == 0:
            really_wait = comm._group.wait

            def interrupted(ready, timeout_s):
                raise KeyboardInterrupt

            comm._group.wait = interrupted
            with pytest.raises(KeyboardInterrupt):
                comm.all_reduce(np.ones(3))
            comm._group.wait = really_wait
            caught = outcome(comm.barrier)
        over.wait(20)
        return caught

    caught, _ = run_ranks(2, body, timeout_s=SOON)
    assert type(caught) is BrokenCommunicatorError, caught
