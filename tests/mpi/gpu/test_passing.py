"""How device arrays and streams of other libraries are passed; large ones staged."""

from types import SimpleNamespace

import numpy as np
import pytest

from collectives import InvalidArgumentError, MismatchError, UnsupportedError
from collectives.calls import pipelining

pytestmark = [pytest.mark.gpus, pytest.mark.gpu_all]


@pytest.fixture(scope="module")
def cp():
    return pytest.importorskip("cupy")


class ByDLPack:
    """An array of another library, which orders its own stream before the reader's."""

    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **how):
        return self._array.__dlpack__(**how)


class ByInterface:
    """An array of a library that has no DLPack."""

    def __init__(self, array, read_only=False):
        self._keeps = array
        told = dict(array.__cuda_array_interface__)
        told["data"] = told["data"][0], read_only
        self.__cuda_array_interface__ = told


STREAMS = {
    "cupy": lambda stream: stream,
    "address": lambda stream: stream.ptr,
    "torch": lambda stream: SimpleNamespace(cuda_stream=stream.ptr),
    "numba": lambda stream: SimpleNamespace(handle=SimpleNamespace(value=stream.ptr)),
}


def want(comm, length, dtype="float32"):
    return sum(part(rank, length, dtype) for rank in range(comm.size))


def part(rank, length, dtype="float32"):
    return ((np.arange(length) + 5 * rank) % 11 - rank).astype(dtype)


@pytest.mark.parametrize("form", STREAMS)
@pytest.mark.parametrize("algorithm", ["auto", "staged", "native"])
def test_a_stream_that_is_given_comes_before_the_call(cp, comm, form, algorithm):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        x = cp.asarray(part(comm.rank, 3000))
        x += 1  # still queued
    y = comm.all_reduce(x, stream=STREAMS[form](stream), algorithm=algorithm)
    np.testing.assert_array_equal(y.get(), want(comm, 3000) + comm.size)
    comm.all_reduce(x, out=x, stream=STREAMS[form](stream), algorithm=algorithm)
    np.testing.assert_array_equal(x.get(), y.get())


def test_the_stream_of_a_thread_is_followed(cp, comm):
    with cp.cuda.Stream.ptds:
        x = cp.asarray(part(comm.rank, 100))
        np.testing.assert_array_equal(comm.all_reduce(x).get(), want(comm, 100))


def test_a_call_in_the_background_follows_the_stream_that_was_current(cp, comm):
    with cp.cuda.Stream(non_blocking=True):
        x = cp.asarray(part(comm.rank, 2000))
        handle = comm.start_all_reduce(x)
        y = handle.wait()
        np.testing.assert_array_equal(y.get(), want(comm, 2000))


def test_what_is_no_stream_is_refused_everywhere_and_forgotten(cp, comm):
    x = cp.ones(3)
    odd = comm.rank == comm.size - 1
    kind = MismatchError if comm.size > 1 else InvalidArgumentError
    with pytest.raises(kind, match="stream is 'left'"):
        comm.all_reduce(x, stream="left" if odd else None)
    with pytest.raises(InvalidArgumentError, match="no array on a GPU"):
        comm.all_reduce(np.ones(3), stream=cp.cuda.Stream.null)
    assert (comm.all_reduce(x).get() == comm.size).all()


@pytest.mark.parametrize("kind", [ByDLPack, ByInterface])
@pytest.mark.parametrize("algorithm", ["auto", "native"])
def test_arrays_of_other_libraries(cp, comm, kind, algorithm):
    inner, out = cp.asarray(part(comm.rank, 600)), cp.zeros(600, np.float32)
    y = comm.all_reduce(kind(inner), algorithm=algorithm)
    np.testing.assert_array_equal(y.get(), want(comm, 600))
    target = kind(out)
    assert comm.all_reduce(kind(inner), out=target, algorithm=algorithm) is target
    np.testing.assert_array_equal(out.get(), want(comm, 600))
    lists = comm.all_reduce_many([kind(inner), kind(inner)], algorithm=algorithm)
    for one in lists:
        np.testing.assert_array_equal(one.get(), want(comm, 600))


def test_memory_that_its_owner_wants_untouched_is_no_target(cp, comm):
    kept = cp.zeros(3)
    with pytest.raises(InvalidArgumentError, match="read-only"):
        comm.all_reduce(cp.ones(3), out=ByInterface(kept, read_only=True))
    assert (kept.get() == 0).all()
    assert (comm.all_reduce(cp.ones(3)).get() == comm.size).all()


def test_host_and_device_arrays_in_one_list_are_refused(cp, comm):
    for arrays in ([cp.ones(2), np.ones(2)], [np.ones(2), cp.ones(2)]):
        with pytest.raises(UnsupportedError, match=r"on the host|on a GPU"):
            comm.all_reduce_many(arrays)
    assert (comm.all_reduce_many([cp.ones(2)])[0].get() == comm.size).all()


def test_results_go_where_the_caller_wants_them(cp, comm):
    x = cp.asarray(part(comm.rank, 50))
    on_host = np.zeros(50, np.float32)
    assert comm.all_reduce(x, out=on_host, algorithm="native") is on_host
    np.testing.assert_array_equal(on_host, want(comm, 50))


@pytest.mark.ranks(2, 3, 4)
def test_messages_carry_device_arrays(cp, comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    x, out = cp.asarray(part(comm.rank, 70)), cp.zeros(70, np.float32)
    host = np.zeros(2)
    comm.exchange(
        [
            (right, x, None, "array"),
            (left, None, out, "array"),
            (right, np.full(2, float(comm.rank)), None, "number"),
            (left, None, host, "number"),
        ]
    )
    np.testing.assert_array_equal(out.get(), part(left, 70))
    assert (host == left).all()
    if comm.rank == 0:
        comm.send(x, comm.size - 1)
    elif comm.rank == comm.size - 1:
        assert comm.recv(out, 0) is out
        np.testing.assert_array_equal(out.get(), part(0, 70))


LENGTHS = [pipelining.BUFFERS, pipelining.BUFFERS + 1, 4.3, 6]


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("segments", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_large_arrays_go_in_segments(cp, comm, monkeypatch, segments, dtype):
    monkeypatch.setattr(pipelining, "SEGMENT_BYTES", 1 << 12)
    length = int(segments * (1 << 12)) // np.dtype(dtype).itemsize
    total = want(comm, length, dtype)
    with cp.cuda.Stream(non_blocking=True):
        x = cp.asarray(part(comm.rank, length, dtype))
        y = comm.all_reduce(x, algorithm="staged")
        np.testing.assert_array_equal(y.get(), total)
        wide = cp.zeros(2 * length, dtype)[::2]
        assert comm.all_reduce(x, out=wide, algorithm="staged") is wide
        np.testing.assert_array_equal(wide.get(), total)
        assert comm.all_reduce(x, out=x, algorithm="staged") is x
        np.testing.assert_array_equal(x.get(), total)
        shifted = cp.zeros(length + 8, dtype)
        shifted[:length] = cp.asarray(part(comm.rank, length, dtype))
        comm.all_reduce(shifted[:length], out=shifted[8:], algorithm="staged")
        np.testing.assert_array_equal(shifted[8:].get(), total)


@pytest.mark.ranks(2, 3)
def test_segments_are_another_call_than_whole_arrays(cp, comm, monkeypatch):
    if comm.rank == 0:
        monkeypatch.setattr(pipelining, "SEGMENT_BYTES", 1 << 12)
    with pytest.raises(MismatchError, match="staged"):
        comm.all_reduce(cp.ones(1 << 14), algorithm="staged")
