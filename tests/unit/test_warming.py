"""After `warm_up` no first call opens anything."""

import numpy as np
import pytest
from harness.threads import WORLDS, outcome, run_ranks

from collectives import InvalidArgumentError, MismatchError


def test_the_window_is_there_before_the_first_call_that_wants_one():
    def body(comm):
        opened = comm.warm_up()
        window = comm._group.window
        assert window is not None and opened.no_window == ""
        comm.all_reduce(np.ones(1000))
        assert comm._group.window is window
        assert comm.warm_up() == opened
        assert comm._group.window is window
        return str(opened)

    assert (
        run_ranks(3, body)
        == ["a window; no NCCL: no call with arrays on GPUs was made"] * 3
    )


@pytest.mark.parametrize("world", WORLDS)
def test_what_cannot_be_had_is_told_and_is_no_error(world):
    def body(comm):
        opened = comm.warm_up("cuda")
        assert comm.all_reduce(1) == 2
        return opened

    first, second = run_ranks(2, body, world)
    assert first == second
    assert bool(first.no_window) == (world == "no board")
    assert "no GPU" in first.no_nccl


def test_a_rank_that_is_alone_needs_none_of_it():
    (opened,) = run_ranks(1, lambda comm: comm.warm_up())
    assert opened.no_window == "there is one rank"


def test_a_device_that_is_none_is_an_error_on_all_ranks():
    def body(comm):
        return outcome(lambda: comm.warm_up("tpu" if comm.rank else "cpu"))

    for error in run_ranks(2, body):
        assert type(error) is MismatchError
        assert "rank 1: warm_up with an invalid argument: device is 'tpu'" in str(error)
    (error,) = run_ranks(1, lambda comm: outcome(lambda: comm.warm_up("tpu")))
    assert type(error) is InvalidArgumentError


def test_it_is_a_call_like_any_other():
    def body(comm):
        return outcome(comm.warm_up if comm.rank else comm.barrier)

    for error in run_ranks(2, body):
        assert type(error) is MismatchError
        assert "warm_up" in str(error) and "barrier" in str(error)
