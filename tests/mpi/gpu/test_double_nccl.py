"""The double's NCCL: it waits for peers, on streams, and objects to misuse."""

import numpy as np
import pytest
from harness.objections import noted, refused

pytestmark = [pytest.mark.gpus, pytest.mark.gpu_each]
COUNT = 6


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


@pytest.fixture
def stream(cp):
    with cp.cuda.Stream(non_blocking=True) as stream:
        yield stream
        stream.synchronize()


@pytest.fixture
def nccl(cp, comm):
    nccl = cp.cuda.nccl
    name = comm.broadcast_object(nccl.get_unique_id() if comm.rank == 0 else None)
    made = nccl.NcclCommunicator(comm.size, name, comm.rank)
    yield made
    comm.barrier()
    made.destroy()


def all_reduce(cp, nccl, x, y, stream):
    lib = cp.cuda.nccl
    nccl.allReduce(
        x.data.ptr, y.data.ptr, x.size, lib.NCCL_FLOAT32, lib.NCCL_SUM, stream.ptr
    )


@pytest.fixture
def pair(cp, comm, stream):
    x = cp.full(COUNT, comm.rank + 1, np.float32)
    return x, cp.zeros(COUNT, np.float32)


def test_it_reduces_when_the_stream_is_waited_for(cp, comm, nccl, pair, stream):
    x, y = pair
    stream.synchronize()
    all_reduce(cp, nccl, x, y, stream)
    assert (y._view == 0).all()
    stream.synchronize()
    assert (y._view == sum(range(1, comm.size + 1))).all()


@pytest.mark.ranks(2, 3, 4)
def test_it_is_not_done_before_all_have_called(cp, comm, nccl, pair, stream):
    x, y = pair
    if comm.rank == 0:
        all_reduce(cp, nccl, x, y, stream)
        event = stream.record()
        assert not any(event.done for _ in range(100))
    comm.barrier()
    if comm.rank != 0:
        all_reduce(cp, nccl, x, y, stream)
    stream.synchronize()
    assert (y._view == sum(range(1, comm.size + 1))).all()


def test_minimum_loses_nan_as_the_real_one_does(cp, comm, nccl, stream):
    lib = cp.cuda.nccl
    x = cp.full(2, np.nan if comm.rank == 0 else 1, np.float32)
    nccl.allReduce(
        x.data.ptr, x.data.ptr, 2, lib.NCCL_FLOAT32, lib.NCCL_MIN, stream.ptr
    )
    assert (np.isnan(x.get()) == (comm.size == 1)).all()


@pytest.mark.ranks(2, 3, 4)
def test_messages_in_a_group_do_not_block_each_other(cp, comm, nccl, stream):
    lib, size = cp.cuda.nccl, comm.size
    x = cp.arange(size, dtype=np.float32) + 10 * comm.rank
    y = cp.zeros(size, np.float32)
    lib.groupStart()
    for peer in range(size):
        place = 4 * peer
        nccl.send(x.data.ptr + place, 1, lib.NCCL_FLOAT32, peer, stream.ptr)
        nccl.recv(y.data.ptr + place, 1, lib.NCCL_FLOAT32, peer, stream.ptr)
    lib.groupEnd()
    assert (y.get() == np.arange(size) * 10 + comm.rank).all()


@pytest.mark.ranks(2, 3, 4)
def test_two_ranks_on_one_device_cannot_have_it(cp, comm):
    lib = cp.cuda.nccl
    name = comm.broadcast_object(lib.get_unique_id() if comm.rank == 0 else None)
    with cp.cuda.Device(0), pytest.raises(lib.NcclError, match="INVALID_USAGE"):
        lib.NcclCommunicator(comm.size, name, comm.rank)


@pytest.mark.parametrize("how", ["abort", "destroy"])
def test_it_is_not_used_after_its_end(cp, comm, nccl, pair, stream, how):
    comm.barrier()
    getattr(nccl, how)()
    with refused(f"that was {how}ed"):
        all_reduce(cp, nccl, *pair, stream)
    with refused(f"that was {how}ed"):
        nccl.check_async_error()


@pytest.mark.ranks(2, 3, 4)
def test_an_abort_ends_what_waits_for_peers(cp, comm, nccl, pair, stream):
    if comm.rank == 0:
        all_reduce(cp, nccl, *pair, stream)
        event = stream.record()
        assert not any(event.done for _ in range(10))
        nccl.abort()
        stream.synchronize()
        assert (pair[1]._view == 0).all()
    comm.barrier()


@pytest.mark.ranks(2, 3, 4)
def test_it_is_not_destroyed_while_calls_are_pending(cp, comm, nccl, pair, stream):
    if comm.rank == 0:
        all_reduce(cp, nccl, *pair, stream)
        with noted("destroyed while"):
            nccl.destroy()
        stream.synchronize()
    comm.barrier()


@pytest.mark.parametrize("ordered", [True, False])
def test_two_streams_need_an_order(cp, comm, nccl, pair, stream, ordered):
    x, y = pair
    z = cp.zeros(COUNT, np.float32)
    other = cp.cuda.Stream(non_blocking=True)
    stream.synchronize()
    all_reduce(cp, nccl, x, y, stream)
    if ordered:
        other.wait_event(stream.record())
        all_reduce(cp, nccl, x, z, other)
        other.synchronize()
        assert (z._view == sum(range(1, comm.size + 1))).all()
    else:
        with refused("in no order"):
            all_reduce(cp, nccl, x, z, other)


@pytest.mark.ranks(2, 3, 4)
def test_not_while_mpi_is_on_device_memory(cp, comm, nccl, pair, stream):
    x, y = pair
    z = cp.zeros(COUNT, np.float32)
    stream.synchronize()
    receiving = comm.mpi.Irecv(z, (comm.rank - 1) % comm.size)
    with refused("MPI's Irecv on device memory is in flight"):
        all_reduce(cp, nccl, x, y, stream)
    comm.mpi.Isend(x, (comm.rank + 1) % comm.size).Wait()
    receiving.Wait()
    all_reduce(cp, nccl, x, y, stream)


def test_no_mpi_on_device_memory_while_it_is_in_flight(cp, comm, nccl, pair, stream):
    x, y = pair
    z = cp.zeros(COUNT, np.float32)
    stream.synchronize()
    all_reduce(cp, nccl, x, y, stream)
    with refused("is in flight"):
        comm.mpi.Bcast(z, 0)
    stream.synchronize()
    comm.mpi.Bcast(z, 0)


@pytest.mark.ranks(2, 3, 4)
def test_calls_that_differ(cp, comm, nccl, pair, stream):
    x, y = pair
    stream.synchronize()
    lib = cp.cuda.nccl
    op = lib.NCCL_MAX if comm.rank == 0 else lib.NCCL_SUM
    nccl.allReduce(x.data.ptr, y.data.ptr, COUNT, lib.NCCL_FLOAT32, op, stream.ptr)
    with refused("calls differ"):
        stream.synchronize()


def test_host_memory_is_refused(cp, nccl, pair, stream):
    lib, host = cp.cuda.nccl, np.zeros(COUNT, np.float32)
    with refused("no memory of a device"):
        nccl.allReduce(
            host.ctypes.data, pair[1].data.ptr, COUNT, lib.NCCL_FLOAT32, 0, stream.ptr
        )


def test_a_fault_shows_as_an_error_and_nothing_ends(cp, comm, nccl, pair, stream):
    from cupy.cuda.nccl import fail

    nccl.check_async_error()
    fail(nccl, 2)
    all_reduce(cp, nccl, *pair, stream)
    event = stream.record()
    assert not any(event.done for _ in range(10))
    with pytest.raises(cp.cuda.nccl.NcclError, match="SYSTEM_ERROR"):
        nccl.check_async_error()
    nccl.abort()
    comm.barrier()
