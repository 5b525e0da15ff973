"""Faults put into the product: with each, the double makes a plain call fail.

What a test of device arrays proves is only worth as much as the faults it would see.
"""

import gc

import numpy as np
import pytest
from harness import gpus

import collectives
from collectives.calls import staging
from collectives.gpu import streams

pytestmark = [pytest.mark.gpus, pytest.mark.gpu_all, pytest.mark.ranks(2, 3, 4)]


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


def nothing(*_arguments):
    pass


def objections(cp, comm):
    """Make a call on a communicator of its own; return what was wrong on any rank."""
    made = collectives.from_mpi(comm.mpi, collectives.Options(timeout_s=5))
    told = _wrong(cp, made)
    gc.collect()
    told += gpus.misuse()
    made._group.broken = ""  # nothing of it is under way, on any rank
    made.close()
    gpus.misuse()
    return [one for rank in comm.all_gather_object(told) for one in rank]


def _wrong(cp, made):
    wanted = sum(range(1, made.size + 1))
    with cp.cuda.Stream(non_blocking=True) as stream:
        x = cp.full(5000, made.rank + 1, np.float32)
        try:
            y = made.all_reduce(x, algorithm="native")
            now = y._view.copy()  # what a host sees that believes the call
            stream.synchronize()
            told = [] if (now == wanted).all() else ["the result was not there"]
            told += [] if (y.get() == wanted).all() else ["a wrong result"]
        except (cp.Misuse, Exception) as error:
            told = [f"{type(error).__name__}: {error}"]
        cp.cuda.Device().synchronize()
    return told


def test_without_a_fault_nothing_is_wrong(cp, comm):
    assert not objections(cp, comm)


def test_the_host_reads_before_the_copy_has_arrived(cp, comm, monkeypatch):
    monkeypatch.setattr(staging.streams, "settle", nothing)
    assert objections(cp, comm)


def test_a_call_returns_before_its_result_is_there(cp, comm, monkeypatch):
    monkeypatch.setattr(staging.streams, "finish", nothing)
    assert objections(cp, comm)


def test_another_stream_is_waited_for(cp, comm, monkeypatch):
    real = streams._mark

    def of_the_default_stream():
        with cp.cuda.Stream.null:
            return real()

    monkeypatch.setattr(streams, "_mark", of_the_default_stream)
    assert objections(cp, comm)


def test_the_copy_back_goes_to_another_stream(cp, comm, monkeypatch):
    real = staging.copy_to_device

    def on_the_default_stream(host, array):
        with cp.cuda.Stream.null:
            real(host, array)

    monkeypatch.setattr(staging, "copy_to_device", on_the_default_stream)
    assert objections(cp, comm)
