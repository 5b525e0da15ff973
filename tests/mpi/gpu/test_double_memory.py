"""The double's memory: what the host, MPI and peers may not touch, and when."""

import gc

import numpy as np
import pytest
from harness.objections import noted, refused

pytestmark = [pytest.mark.gpus, pytest.mark.gpu_all]


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


@pytest.fixture
def stream(cp):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        yield stream
        stream.synchronize()


def pinned(cp, count):
    memory = cp.cuda.alloc_pinned_memory(count * 4)
    return np.frombuffer(memory, np.float32, count)


def test_a_device_array_does_not_become_one_of_the_host_by_itself(cp):
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(cp.zeros(3))
    with pytest.raises(TypeError, match="Unsupported type"):
        cp.zeros(3) + np.zeros(3)


def test_a_copy_that_nobody_waited_for_has_not_arrived(cp, stream):
    x, host = cp.full(6, 3, np.float32), pinned(cp, 6)
    host[:] = 9
    x.get(out=host, blocking=False)
    assert not (host == 3).any()
    assert not (host == 9).any()  # nor is the old there: nobody may count on that
    stream.synchronize()
    assert (host == 3).all()


def test_a_copy_to_memory_that_is_not_pinned_waits(cp, stream):
    x, host = cp.full(6, 3, np.float32), np.zeros(6, np.float32)
    x.get(out=host, blocking=False)
    assert (host == 3).all()


def test_a_pinned_source_must_stay_as_it_is_until_it_has_been_read(cp, stream):
    x, host = cp.zeros(6, np.float32), pinned(cp, 6)
    host[:] = 1
    x.set(host)
    host[:] = 2
    with refused("changed the pinned source"):
        stream.synchronize()


def test_pinned_memory_is_not_let_go_while_it_is_read(cp, stream):
    x, host = cp.zeros(6, np.float32), pinned(cp, 6)
    host[:] = 1
    x.set(host)
    with noted("pinned memory is let go"):
        del host
        gc.collect()
    stream.synchronize()


def test_registered_memory_is_pinned_until_it_is_given_back(cp, stream):
    host = np.zeros(1024, np.float32)
    address = host.ctypes.data
    cp.cuda.runtime.hostRegister(address, host.nbytes, 0)
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="AlreadyRegistered"):
        cp.cuda.runtime.hostRegister(address, host.nbytes, 0)
    x = cp.full(1024, 3, np.float32)
    x.get(out=host, blocking=False)
    assert not (host == 3).any()
    with noted("registered memory is given back"):
        cp.cuda.runtime.hostUnregister(address)
    stream.synchronize()


def test_memory_is_not_freed_while_work_is_pending_on_it(cp, stream):
    address = cp.cuda.runtime.malloc(4096)
    cp.cuda.runtime.memsetAsync(address, 1, 4096, stream.ptr)
    with noted("freed while memset"):
        cp.cuda.runtime.free(address)
    with refused("was freed"):
        cp.cuda.runtime.memsetAsync(address, 1, 4096, stream.ptr)


def test_an_array_is_not_freed_while_another_stream_uses_it(cp):
    one, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with one:
        x = cp.ones(64)
    other.wait_event(one.record())
    with other:
        y = x + 1
    with noted("may still use its memory"):
        del x
    other.synchronize()
    assert (y.get(stream=other) == 2).all()


def test_an_array_may_be_freed_while_its_own_stream_uses_it(cp, stream):
    x = cp.ones(64)
    y = x + 1
    del x
    z = cp.zeros(64)  # in the same memory, later on the same stream
    assert (y.get() == 2).all()
    assert (z.get() == 0).all()


def test_a_copy_does_not_go_beyond_an_allocation(cp, stream):
    address = cp.cuda.runtime.malloc(4096)
    with refused("beyond the memory"):
        cp.cuda.runtime.memsetAsync(address + 4000, 0, 100, stream.ptr)
    cp.cuda.runtime.free(address)


def test_a_copy_goes_where_it_is_said_to_go(cp, stream):
    x, runtime = cp.zeros(4, np.float32), cp.cuda.runtime
    host = np.zeros(4, np.float32)
    with refused("was called device-to-host"):
        runtime.memcpyAsync(
            x.data.ptr, host.ctypes.data, 16, runtime.memcpyDeviceToHost, stream.ptr
        )


def test_mpi_is_not_given_memory_that_a_kernel_has_still_to_write(cp, comm, stream):
    x = cp.zeros(4, np.float32)
    with refused("nobody has waited for fill"):
        comm.mpi.Bcast(x, 0)
    stream.synchronize()
    comm.mpi.Bcast(x, 0)


def test_mpi_is_not_given_pinned_memory_that_a_copy_has_still_to_write(
    cp, comm, stream
):
    x, host = cp.zeros(4, np.float32), pinned(cp, 4)
    x.get(out=host, blocking=False)
    with refused("nobody has waited for a copy"):
        comm.mpi.Bcast(host, 0)
    stream.synchronize()
    comm.mpi.Bcast(host, 0)


def test_mpi_does_not_write_where_a_kernel_still_reads(cp, comm, stream):
    x = cp.zeros(4, np.float32)
    stream.synchronize()
    x + 1
    with refused("nobody has waited for add"):
        comm.mpi.Bcast(x, 0)


@pytest.mark.ranks(2, 3, 4)
def test_a_kernel_does_not_touch_what_mpi_is_receiving(cp, comm, stream):
    x, y = cp.zeros(4, np.float32), cp.ones(4, np.float32)
    stream.synchronize()
    peer = (comm.rank + 1) % comm.size
    receiving = comm.mpi.Irecv(x, (comm.rank - 1) % comm.size)
    with refused("MPI's Irecv is using"):
        x + 1
    comm.mpi.Isend(y, peer).Wait()
    receiving.Wait()
    assert ((x + 1).get() == 2).all()


def test_mpi_reduces_no_device_memory_without_blocking(cp, comm, stream):
    x, y = cp.zeros(4, np.float32), cp.ones(4, np.float32)
    stream.synchronize()
    with refused("crashes some MPIs"):
        comm.mpi.Iallreduce(x, y)


@pytest.mark.ranks(2, 3, 4)
class TestPeers:
    """Memory of another process, opened by a handle."""

    @pytest.fixture
    def own(self, cp, comm):
        memory = cp.cuda.Memory(4096)
        x = cp.ndarray(8, np.float32, cp.cuda.MemoryPointer(memory, 1024))
        x.fill(comm.rank)
        cp.cuda.Device().synchronize()
        return x

    def opened(self, cp, comm, own):
        """Return the next rank's array, as CuPy sees it here, and its address."""
        cuda = cp.cuda
        handles = comm.all_gather_object(cuda.runtime.ipcGetMemHandle(own.data.ptr))
        address = cuda.runtime.ipcOpenMemHandle(handles[(comm.rank + 1) % comm.size])
        memory = cuda.UnownedMemory(address, 4096, None, cuda.runtime.getDevice())
        return cp.ndarray(8, np.float32, cuda.MemoryPointer(memory, 1024)), address

    def test_a_handle_is_of_the_whole_allocation(self, cp, comm, own):
        theirs, address = self.opened(cp, comm, own)
        assert (theirs.get() == (comm.rank + 1) % comm.size).all()
        comm.barrier()
        cp.cuda.runtime.ipcCloseMemHandle(address)

    def test_a_handle_of_my_own_cannot_be_opened(self, cp, own):
        handle = cp.cuda.runtime.ipcGetMemHandle(own.data.ptr)
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="context"):
            cp.cuda.runtime.ipcOpenMemHandle(handle)

    def test_it_is_not_used_after_it_was_closed(self, cp, comm, own):
        theirs, address = self.opened(cp, comm, own)
        cp.cuda.runtime.ipcCloseMemHandle(address)
        with refused("handle that has been closed"):
            theirs + 1
        comm.barrier()

    def test_it_is_not_closed_while_work_is_pending(self, cp, comm, own):
        theirs, address = self.opened(cp, comm, own)
        theirs + 1
        with noted("closed while add"):
            cp.cuda.runtime.ipcCloseMemHandle(address)
        with refused("closed"):
            theirs + 1
        comm.barrier()

    def test_its_owner_does_not_free_what_others_have_open(self, cp, comm):
        runtime = cp.cuda.runtime
        mine = runtime.malloc(4096)
        handles = comm.all_gather_object(runtime.ipcGetMemHandle(mine))
        address = runtime.ipcOpenMemHandle(handles[(comm.rank + 1) % comm.size])
        comm.barrier()
        with noted("other processes have open"):
            runtime.free(mine)
        comm.barrier()
        with refused("its owner has freed"):
            runtime.memsetAsync(address, 0, 16, 0)
        runtime.ipcCloseMemHandle(address)

    def test_it_is_not_opened_after_the_memory_was_freed(self, cp, comm):
        runtime = cp.cuda.runtime
        mine = runtime.malloc(4096)
        handles = comm.all_gather_object(runtime.ipcGetMemHandle(mine))
        runtime.free(mine)
        comm.barrier()
        with pytest.raises(runtime.CUDARuntimeError):
            runtime.ipcOpenMemHandle(handles[(comm.rank + 1) % comm.size])
        comm.barrier()

    def test_what_a_peer_has_not_waited_for_is_not_there(self, cp, comm, own):
        theirs, address = self.opened(cp, comm, own)
        comm.barrier()
        with cp.cuda.Stream(non_blocking=True) as stream:
            own.fill(77)
        comm.barrier()
        assert not (theirs.get() == 77).any()
        comm.barrier()
        stream.synchronize()
        comm.barrier()
        assert (theirs.get() == 77).all()
        comm.barrier()
        cp.cuda.runtime.ipcCloseMemHandle(address)
