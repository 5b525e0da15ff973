"""Calls in the background: the same results, their own order, their own errors."""

import numpy as np
import pytest

from collectives import BrokenCommunicatorError, CollectiveTimeoutError, MismatchError
from collectives.transport.mpi import MPIMessages


def test_every_kind_gives_what_the_blocking_call_gives(comm):
    x = np.arange(12.0).reshape(3, 4) + comm.rank
    for name, arguments in {
        "all_reduce": (x, "mean"),
        "reduce": (x, "max", comm.size - 1),
        "scan": (x,),
        "reduce_scatter": (x,),
        "broadcast": (x, comm.size - 1),
        "all_gather": (x,),
        "gather": (x, 0, 1),
        "scatter": (x,),
        "all_to_all": (x,),
        "all_gather_object": ("x" * comm.rank,),
        "broadcast_object": (comm.rank,),
        "gather_object": (comm.rank,),
    }.items():
        handle = getattr(comm, f"start_{name}")(*arguments)
        wanted = getattr(comm, name)(*arguments)
        got = handle.wait()
        assert handle.done()
        np.testing.assert_equal(got, wanted, err_msg=name)


def test_they_run_in_the_order_in_which_they_were_started(comm):
    out = np.zeros(1000)
    first = comm.start_all_reduce(np.ones(1000), out=out)
    second = comm.start_all_reduce(out, out=out)
    assert second.wait() is out
    assert first.done()
    assert (out == comm.size**2).all()


def test_they_do_not_meet_blocking_calls(comm):
    handles = [comm.start_all_reduce(np.full(5, i)) for i in range(20)]
    for i in range(20):
        assert comm.all_reduce(i).item() == i * comm.size
    for i, handle in enumerate(handles):
        assert handle.wait().tolist() == [i * comm.size] * 5


@pytest.mark.ranks(2, 3)
def test_after_close_nothing_starts_and_nothing_is_left_open(comm):
    before = MPIMessages.held
    group = comm.split(0)
    assert group.start_all_reduce(1).wait().item() == comm.size
    group.close()
    assert MPIMessages.held == before
    with pytest.raises(BrokenCommunicatorError, match="it was closed"):
        group.start_all_reduce(1).wait()


@pytest.mark.ranks(2, 3)
def test_an_error_is_raised_by_wait_on_all_ranks(comm):
    handle = comm.start_all_reduce(np.ones(2 + comm.rank))
    with pytest.raises(MismatchError, match="disagree on shape"):
        handle.wait()
    assert comm.start_all_reduce(1).wait().item() == comm.size


@pytest.mark.ranks(2)
def test_wait_has_a_deadline_of_its_own_and_the_call_goes_on(comm):
    comm.start_barrier().wait()
    if comm.rank == 0:
        handle = comm.start_barrier()
        with pytest.raises(
            CollectiveTimeoutError, match="barrier has not ended within"
        ):
            handle.wait(0.05)
        assert not handle.done()
        comm.barrier()
    else:
        comm.barrier()
        handle = comm.start_barrier()
    handle.wait()


@pytest.mark.ranks(2, 4)
def test_exchange_in_the_background(comm):
    out = np.zeros(3)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    pairs = [(right, np.full(3, comm.rank), None), (left, None, out)]
    pairs[0] = (right, np.full(3, float(comm.rank)), None)
    comm.start_exchange(pairs).wait()
    assert out.tolist() == [left] * 3
