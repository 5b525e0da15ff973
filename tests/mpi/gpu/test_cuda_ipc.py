"""Through the memory of GPUs that the ranks of a host open to each other."""

from contextlib import contextmanager

import numpy as np
import pytest
from harness import gpus
from harness.arrays import dtype_of, equal, values
from harness.oracle import reduced, result_dtype

import collectives
from collectives import Options
from collectives.algorithms import cuda_ipc, device_window
from collectives.gpu import streams
from collectives.partition import even_bounds
from collectives.transport import cuda_ipc as cuda_ipc_memory
from collectives.transport import device_window as transport_window
from collectives.transport import exported

pytestmark = [pytest.mark.gpus, pytest.mark.one_host]

IPC = "cuda_ipc"
SLOT_BYTES = 1 << 12
SIZES = (0, 1, 3, 1000, 20_001)

REDUCTIONS = {
    "bool": ("and", "or", "xor", "min", "max"),
    "int8": ("sum", "xor"),
    "int16": ("sum", "prod", "max"),
    "int32": ("sum", "mean", "and"),
    "int64": ("sum", "mean", "min"),
    "uint8": ("sum", "or"),
    "uint16": ("sum", "max"),
    "uint32": ("sum", "prod"),
    "uint64": ("sum", "min"),
    "float16": ("sum", "mean", "prod", "min"),
    "float32": ("sum", "mean", "prod", "max"),
    "float64": ("sum", "mean", "min"),
    "complex64": ("sum", "mean", "prod"),
    "complex128": ("sum", "mean", "prod"),
}
CASES = [(name, op) for name, ops in REDUCTIONS.items() for op in ops]


@pytest.fixture(scope="module")
def cp():
    return pytest.importorskip("cupy")


@pytest.fixture(scope="module")
def ipc(comm, cp):
    """Return a communicator whose window on the devices has short slots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_window, "SLOT_BYTES", SLOT_BYTES)
        made = collectives.from_mpi(comm.mpi, Options(timeout_s=30))
        made.all_reduce(cp.ones(3), algorithm=IPC if made.size > 1 else None)
        yield made
        made.close()


@pytest.fixture(params=["whole", "slices"], autouse=True)
def way(request, monkeypatch):
    """Let all arrays be added up whole by everybody, or none."""
    limit = 0 if request.param == "slices" else 1 << 30
    monkeypatch.setattr(cuda_ipc, "WHOLE_BYTES", limit)
    return request.param


def by(comm):
    return {"algorithm": IPC} if comm.size > 1 else {}


def contributions(comm, name, op, size):
    return [values(name, op, rank, (size,)) for rank in range(comm.size)]


def same(array, expected):
    """Tell whether a device array has these values; complex means round otherwise."""
    found = array.get()
    assert found.dtype == expected.dtype
    if found.dtype.kind == "c":
        return found.shape == expected.shape and np.allclose(found, expected, 1e-5)
    return equal(found, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "op"), CASES)
def test_reductions(ipc, cp, name, op, size):
    everyone = contributions(ipc, name, op, size)
    expected, rank = reduced(name, op, everyone), ipc.rank
    x = cp.asarray(everyone[rank])
    assert same(ipc.all_reduce(x, op, **by(ipc)), expected)
    assert same(x, everyone[rank])
    for root in {0, ipc.size - 1}:
        total = ipc.reduce(x, op, root=root, **by(ipc))
        assert total is None if rank != root else same(total, expected)
    low, high = even_bounds(size, ipc.size)[rank : rank + 2]
    assert same(ipc.reduce_scatter(x, op, **by(ipc)), expected[low:high])
    if op != "mean":
        first = reduced(name, op, everyone[: rank + 1])
        assert same(ipc.scan(x, op, **by(ipc)), first)
    if result_dtype(name, op) == x.dtype:
        assert ipc.all_reduce(x, op, out=x, **by(ipc)) is x
        assert same(x, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["bool", "int16", "float16", "float64", "complex128"])
def test_moves(ipc, cp, name, size):
    everyone = [
        values(name, "sum", rank, (size + 5 * rank, 2)) for rank in range(ipc.size)
    ]
    rank, x = ipc.rank, cp.asarray(everyone[ipc.rank])
    joined = np.concatenate(everyone)
    assert same(ipc.all_gather(x, **by(ipc)), joined)
    for root in {0, ipc.size - 1}:
        whole = ipc.gather(x, root=root, **by(ipc))
        assert whole is None if rank != root else same(whole, joined)
        like = (
            cp.asarray(everyone[root])
            if rank == root
            else cp.zeros_like(cp.asarray(everyone[root]))
        )
        assert same(ipc.broadcast(like, root=root, **by(ipc)), everyone[root])
    alike = [values(name, "sum", rank, (size, 2)) for rank in range(ipc.size)]
    bounds = even_bounds(size, ipc.size)
    low, high = bounds[rank : rank + 2]
    got = ipc.all_to_all(cp.asarray(alike[rank]), **by(ipc))
    assert same(got, np.concatenate([one[low:high] for one in alike]))


def test_views_and_other_layouts(ipc, cp):
    everyone = contributions(ipc, "float32", "sum", 3000)
    expected = reduced("float32", "sum", everyone)
    memory = cp.full(7000, 9, np.float32)
    x = memory[1:6001:2]
    x[...] = cp.asarray(everyone[ipc.rank])
    out = cp.full((3000, 2), 9, np.float32)[:, 1]
    assert ipc.all_reduce(x, out=out, **by(ipc)) is out
    assert same(out, expected)
    assert (memory[::2].get() == 9).all()
    assert ipc.all_reduce(x, out=x, **by(ipc)) is x
    assert same(x, expected)
    assert (memory[::2].get() == 9).all()


def test_on_a_stream_that_is_not_the_default_one(ipc, cp):
    stream = cp.cuda.Stream(non_blocking=True)
    everyone = contributions(ipc, "float64", "sum", 5000)
    with stream:
        for turn in range(3):
            x = cp.asarray(everyone[ipc.rank]) * (turn + 1)
            result = ipc.all_reduce(x, **by(ipc))
            expected = reduced("float64", "sum", [(turn + 1) * one for one in everyone])
            assert same(result, expected)


def test_it_may_be_asked_for_in_rank_order(ipc, cp):
    ordered = ipc.with_options(deterministic=True)
    x = cp.full(100, 1 + ipc.rank, np.float32)
    assert same(ordered.all_reduce(x, **by(ipc)), _full(ipc, 100))


@pytest.mark.ranks(2, 3, 4)
def test_without_waiting_for_the_stream_old_bytes_are_read(ipc, cp, monkeypatch, way):
    """What a hand-over without `finish` would do: the test of all tests here."""
    before = cp.full(500, 77, np.float32)
    ipc.all_reduce(before, **by(ipc))  # leaves something in the slots
    x = cp.full(500, 1 + ipc.rank, np.float32)
    real = streams.finish
    monkeypatch.setattr(streams, "finish", lambda *arguments: None)
    result = ipc.all_reduce(x, **by(ipc))
    monkeypatch.setattr(streams, "finish", real)
    for rank in range(ipc.size):  # one after the other does what it has queued
        if rank == ipc.rank:
            wrong = not same(result, _full(ipc, 500))
        ipc.barrier()
    gpus.misuse()
    assert any(ipc.all_gather_object(wrong))
    assert same(ipc.all_reduce(x, **by(ipc)), _full(ipc, 500))


def _full(comm, size):
    return np.full(size, comm.size * (comm.size + 1) // 2, np.float32)


# --- registered arrays ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float16", "int64"])
@pytest.mark.parametrize("which", ["all", "odd ranks", "rank 0"])
def test_registered_arrays(ipc, cp, name, which):
    chosen = {"all": True, "odd ranks": ipc.rank % 2 == 1, "rank 0": ipc.rank == 0}
    where = {"device": "cuda"} if chosen[which] else None
    size = 9001

    def array():
        if where is None:
            return cp.empty(size + 3, dtype_of(name))
        return ipc.empty(size + 3, dtype_of(name), **where)

    everyone = contributions(ipc, name, "sum", size)
    expected = reduced(name, "sum", everyone)
    memory, target = array(), array()
    x, out = memory[3:], target[1:-2]
    for _ in range(4):  # the first call tells the others of it
        x[...] = cp.asarray(everyone[ipc.rank])
        assert ipc.all_reduce(x, out=out, **by(ipc)) is out
        x[...] = 0  # nobody reads it any more
        assert same(out, expected)
        out[...] = cp.asarray(everyone[ipc.rank])
        assert ipc.all_reduce(out, out=out, **by(ipc)) is out
        assert same(out, expected)
        x[...] = cp.asarray(everyone[ipc.rank])
        total = ipc.reduce(x, root=0, **by(ipc))
        x[...] = 0
        assert total is None or same(total, expected)


def test_registered_arrays_are_freed_while_others_go_on(ipc, cp, way):
    if way == "whole":
        pytest.skip("small arrays go through the window")
    info = cp.cuda.runtime.memGetInfo
    ipc.all_reduce(cp.ones(3000), **by(ipc))
    ipc.all_reduce(cp.ones(3000), **by(ipc))
    ipc.barrier()
    before = info()[0]
    for turn in range(2 * ipc.size):
        x = ipc.full(3000, 1 + ipc.rank, np.float32, device="cuda")
        for _ in range(3):
            assert same(ipc.all_reduce(x, **by(ipc)), _full(ipc, 3000))
        if ipc.rank == turn % ipc.size:
            del x
            x = cp.full(3000, 1 + ipc.rank, np.float32)
        for _ in range(3):
            assert same(ipc.all_reduce(x, **by(ipc)), _full(ipc, 3000))
        del x
    ipc.all_reduce(cp.ones(3000), **by(ipc))
    ipc.all_reduce(cp.ones(3000), **by(ipc))
    ipc.barrier()
    assert info()[0] >= before


def test_registered_arrays_outlive_their_communicator(comm, cp, way):
    with collectives.from_mpi(comm.mpi, Options(timeout_s=30)) as made:
        x = made.full(3000, 1 + comm.rank, np.float32, device="cuda")
        for _ in range(2):
            result = made.all_reduce(x, **by(comm))
    assert same(result, _full(comm, 3000))
    x[...] = 5
    with collectives.from_mpi(comm.mpi, Options(timeout_s=30)) as other:
        for _ in range(3):
            total = other.all_reduce(x, **by(comm))
    assert same(total, np.full(3000, 5 * comm.size, np.float32))


def test_one_that_a_peer_cannot_open_goes_through_the_window(ipc, cp, monkeypatch):
    x = ipc.full(3000, 1 + ipc.rank, np.float32, device="cuda")
    if ipc.rank == 0:

        def refuse(offer):
            raise OSError("no more")

        monkeypatch.setattr(exported, "Opened", refuse)
    for _ in range(3):
        assert same(ipc.all_reduce(x, out=None, **by(ipc)), _full(ipc, 3000))


def test_pinned_arrays(ipc, cp):
    for size in (0, 10, 100_000):
        x = ipc.full(size, 1 + ipc.rank, np.float32, device="pinned")
        assert isinstance(x, np.ndarray)
        assert equal(ipc.all_reduce(x), _full(ipc, size))
    with pytest.raises(collectives.InvalidArgumentError, match="device is 'gpu'"):
        ipc.empty(3, device="gpu")


def test_packs_on_a_device(ipc, cp):
    packs = ipc.packs([np.zeros((3, 4), np.float32), np.zeros(7)], device="cuda")
    for view in packs.next():
        assert isinstance(view, cp.ndarray)


# --- opening and closing -------------------------------------------------------------


def test_closing_gives_all_memory_back(comm, cp, monkeypatch):
    made, freed = [], []

    def export(nbytes):
        memory = cuda_ipc_memory.export(nbytes)
        made.append(memory.number)
        return memory

    def free(memory):
        freed.append(memory.number)
        cuda_ipc_memory.free(memory)

    monkeypatch.setattr(device_window, "export", export)
    for module in (device_window, transport_window):
        monkeypatch.setattr(module, "free", free)
    with collectives.from_mpi(comm.mpi, Options(timeout_s=30)) as one:
        one.all_reduce(cp.ones(1000), **by(comm))
        assert len(made) == (comm.size > 1)
        assert not freed
    assert sorted(made) == sorted(freed)


@contextmanager
def one_that(comm, patch, name, instead):
    """Return a new communicator on which rank 0 has something else in the way."""
    if comm.rank == 0:
        patch.setattr(device_window, name, instead)
    with collectives.from_mpi(comm.mpi, Options(timeout_s=30)) as made:
        yield made


def _raising(*arguments):
    raise OSError("not here")


class _NotOpened(device_window.Opened):
    def __init__(self, offer):
        _raising()


def _apart():
    return b"somewhere else"


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize(
    ("name", "instead", "reason"),
    [
        ("namespaces", _apart, "are in other containers than rank 0"),
        ("export", _raising, "rank 0: OSError: not here"),
        ("Opened", _NotOpened, "rank 0: OSError: not here"),
        ("_read", _raising, "rank 0: OSError: not here"),
    ],
)
def test_what_stands_in_the_way_is_told_by_all(
    comm, cp, monkeypatch, name, instead, reason
):
    with one_that(comm, monkeypatch, name, instead) as made:
        x = cp.full(1000, 1 + comm.rank, np.float32)
        with pytest.raises(collectives.UnsupportedError, match=reason):
            made.all_reduce(x, algorithm=IPC)
        assert same(made.all_reduce(x), _full(comm, 1000))
