"""Device arrays by NCCL: the results of calls on the host, and how calls end badly."""

import threading
import time
import zlib

import numpy as np
import pytest

import collectives
from collectives import (
    BrokenCommunicatorError,
    CollectiveTimeoutError,
    DeviceError,
    Options,
    UnsupportedError,
    exits,
)
from collectives.algorithms import nccl as rows
from collectives.algorithms.nccl_forms import form_of
from collectives.kernels import OPS_OF_KIND, kernel_for, kind_of
from collectives.transport.nccl import Nccl

pytestmark = [pytest.mark.gpus, pytest.mark.gpu_each]

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
CASES = [
    (dtype, op)
    for dtype in DTYPES
    for op in sorted(OPS_OF_KIND[kind_of(np.dtype(dtype))])
]
SIZES = (0, 1, 7, 1000)


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


@pytest.fixture
def own(comm):
    """Return what makes a communicator that a test may break."""
    made = []

    def make(**options):
        made.append(collectives.from_mpi(comm.mpi, Options(**options)))
        return made[-1]

    yield make
    comm.barrier()  # who is broken, on any rank, is left as it is
    broken = comm.all_reduce([bool(one._group.broken) for one in made] or [0], "max")
    for one, is_broken in zip(made, broken, strict=False):
        if is_broken:
            exits.forget(one._group)  # which would end the job
        else:
            one.close()


def numbers(dtype, size, seed):
    """Return small numbers, whose sums are exact; a NaN among those that have it."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, size).astype(bool)
    x = rng.integers(0 if kind == "u" else -3, 4, size).astype(dtype)
    if kind == "c":
        x *= 1 - 2j
    if kind == "f" and size > 2:
        x[rng.integers(size)] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    return x


def told(got, wanted):
    """Return what is wrong with a result; nothing is raised, as others go on."""
    if got is None or wanted is None:
        return [] if got is wanted else [f"{got} for {wanted}"]
    got = got.get()
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return [f"{got.dtype} {got.shape} for {wanted.dtype} {wanted.shape}"]
    nan = wanted.dtype.kind in "fc"
    return [] if np.array_equal(got, wanted, equal_nan=nan) else [f"{got} for {wanted}"]


def digest(result):
    return None if result is None else zlib.crc32(result.get().tobytes())


@pytest.mark.parametrize(("dtype", "op"), CASES)
@pytest.mark.parametrize("way", ["nccl", "nccl_exchange"])
def test_every_dtype_and_op_as_on_the_host(cp, comm, way, dtype, op):
    wrong, digests = [], []
    kernel = kernel_for(op, np.dtype(dtype))
    possible = way != "nccl" or form_of(kernel) is not None
    for size in SIZES if way == "nccl" else (0, 7):
        x = numbers(dtype, size, comm.rank)
        splits = [0] * comm.size
        splits[-1] = size
        given = cp.array(x)
        for name, how in (
            ("all_reduce", {}),
            ("reduce", {"root": comm.size - 1}),
            ("reduce_scatter", {}),
            ("reduce_scatter", {"splits": splits}),
        ):
            call = getattr(comm, name)
            if not possible:
                with pytest.raises(UnsupportedError, match=f"NCCL has no {op} for"):
                    call(given, op, **how, algorithm=way)
                continue
            got = call(given, op, **how, algorithm=way)
            wrong += told(got, call(x, op, **how)) + told(given, x)
            digests += [digest(got)] if name == "all_reduce" else []
        if possible:
            out = given if kernel.result_dtype == x.dtype else None
            got = comm.all_reduce(given, op, out=out, algorithm=way)
            wrong += told(got, comm.all_reduce(x, op))
    assert not wrong
    assert len(set(map(tuple, comm.all_gather_object(digests)))) == 1


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("op", ["sum", "mean", "prod"])
def test_in_rank_order_it_has_the_bits_of_the_host(cp, comm, dtype, op):
    """Numbers whose sum depends on the order, and on where it is rounded."""
    rng = np.random.default_rng(comm.rank)
    x = (rng.standard_normal(1001) * 10.0 ** rng.integers(-3, 3, 1001)).astype(dtype)
    ordered = comm.with_options(deterministic=True)
    wanted = ordered.all_reduce(x, op)
    got = ordered.all_reduce(cp.array(x), op, algorithm="nccl_exchange")
    assert got.get().tobytes() == wanted.tobytes()
    if dtype == "float16":
        got = comm.all_reduce(cp.array(x), op, algorithm="nccl")
        assert got.get().tobytes() == wanted.tobytes()
    many = [cp.array(x[:7]), cp.array(x)]
    for part in (ordered.all_reduce_many(many, op, algorithm="nccl_exchange"),):
        assert part[1].get().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_moved_as_on_the_host(cp, comm, dtype):
    wrong = []
    for size in SIZES:
        x, uneven = numbers(dtype, size, comm.rank), comm.rank * 3 % (size + 1)
        splits = [0] * comm.size
        splits[(comm.rank + 1) % comm.size] = size
        calls = (
            lambda x, **by: comm.broadcast(x, comm.size - 1, **by),
            lambda x, **by: comm.all_gather(x, **by),
            lambda x, n=uneven, **by: comm.all_gather(x[:n], **by),
            lambda x, n=uneven, **by: comm.gather(x[:n], comm.size - 1, **by),
            lambda x, **by: comm.gather(x, 0, **by),
            lambda x, **by: comm.all_to_all(x, **by),
            lambda x, s=splits, **by: comm.all_to_all(x, splits=s, **by),
        )
        for call in calls:
            wrong += told(call(cp.array(x), algorithm="nccl"), call(x))
    assert not wrong


@pytest.mark.ranks(2, 3, 4)
def test_lists_go_together_without_a_pack(cp, comm, monkeypatch):
    launched, launch = [], Nccl.launch
    monkeypatch.setattr(rows, "TOGETHER", 4)
    monkeypatch.setattr(
        Nccl,
        "launch",
        lambda self, what, *a: (launched.append(what), launch(self, what, *a))[1],
    )
    sizes = [0, 3, 5000, 1, 2, 3, 4, 5, 6, 0]
    lists = [numbers("float32", size, comm.rank + size) for size in sizes]
    for op in ("sum", "mean", "max"):
        launched.clear()
        got = comm.all_reduce_many([cp.array(x) for x in lists], op, algorithm="nccl")
        assert launched == ["ncclAllReduce"] * -(-len(sizes) // rows.TOGETHER)
        wanted = comm.all_reduce_many(lists, op)
        assert not [w for both in zip(got, wanted, strict=True) for w in told(*both)]
    mixed = [cp.ones(4, "float32"), cp.arange(3), cp.ones(2, "float32")]
    first, second, third = comm.all_reduce_many(mixed, out=mixed)
    assert first is mixed[0] and (first.get() == comm.size).all()
    assert (second.get() == np.arange(3) * comm.size).all()
    assert (third.get() == comm.size).all()


@pytest.mark.ranks(2, 3, 4)
def test_it_is_what_auto_takes_and_one_communicator_does_it_all(cp, own):
    comm = own()
    assert comm._group.nccl is None
    comm.all_reduce(cp.ones(3))
    nccl = comm._group.nccl
    assert nccl.init_s > 0
    comm.broadcast(cp.ones(3))
    assert comm._group.nccl is nccl


@pytest.mark.ranks(2, 3, 4)
def test_after_a_warm_up_no_call_opens_anything(cp, own):
    comm = own()
    opened = comm.warm_up("cuda")
    nccl = comm._group.nccl
    assert not opened.no_nccl and opened.nccl_s == nccl.init_s > 0
    assert "NCCL, opened in" in str(opened)
    comm.all_reduce(cp.ones(3))
    assert comm._group.nccl is nccl


@pytest.mark.ranks(2, 3, 4)
def test_what_goes_on_in_the_background_is_launched_in_any_order(cp, comm, monkeypatch):
    """Both calls begin on the caller's stream; which is first differs by rank."""
    launch = Nccl.launch

    def late(self, *arguments):
        if self.group.members.background == bool(comm.rank % 2):
            time.sleep(0.02)
        launch(self, *arguments)

    with cp.cuda.Stream(non_blocking=True):
        x = cp.full(2000, comm.rank + 1, np.float32)
        y = cp.full(2000, 5, np.int64)
        comm.start_all_reduce(x).wait()  # both have opened NCCL from here on
        comm.all_reduce(y)
        monkeypatch.setattr(Nccl, "launch", late)
        for _ in range(3):
            handle = comm.start_all_reduce(x)
            assert (comm.all_reduce(y).get() == 5 * comm.size).all()
            wanted = comm.size * (comm.size + 1) / 2
            assert (handle.wait().get() == wanted).all()


@pytest.mark.ranks(2, 3, 4)
def test_an_error_that_nccl_finds_while_it_works(cp, comm, own):
    mine = own(timeout_s=1)
    mine.all_reduce(cp.ones(3))
    if comm.rank == 1:
        cp.cuda.nccl.fail(mine._group.nccl._comm, 6)
    with pytest.raises((DeviceError, CollectiveTimeoutError)) as caught:
        mine.all_reduce(cp.ones(3))
    if comm.rank == 1:
        assert type(caught.value) is DeviceError
        assert "NCCL_ERROR_REMOTE_ERROR" in str(caught.value)
        assert str(caught.value).startswith("rank 1: ")
    with pytest.raises(BrokenCommunicatorError, match="cannot be used any more"):
        mine.all_reduce(cp.ones(3))


@pytest.mark.ranks(2, 3, 4)
def test_a_rank_that_gets_stuck_before_its_launch_is_a_timeout(
    cp, comm, own, monkeypatch
):
    mine, over = own(timeout_s=0.5), threading.Event()
    mine.all_reduce(cp.ones(3))
    if comm.rank == 1:
        monkeypatch.setattr(Nccl, "launch", lambda *arguments: over.wait(1.5))
    start = time.monotonic()
    caught = None
    try:
        mine.all_reduce(cp.ones(3))
    except CollectiveTimeoutError as error:
        caught = error
    assert time.monotonic() - start < 15
    if comm.rank != 1:
        assert "made no progress for 0.5 s" in str(caught)
        assert mine._group.nccl._comm is None
        with pytest.raises(BrokenCommunicatorError):
            mine.all_reduce(cp.ones(3))


@pytest.mark.ranks(2, 3, 4)
def test_a_communicator_that_was_closed_has_ended_nccl(cp, comm):
    with collectives.from_mpi(comm.mpi) as mine:
        mine.all_reduce(cp.ones(3))
        parts = [mine.split(comm.rank % 2), mine.group(range(comm.size))]
        for part in parts:
            part.all_reduce(cp.ones(3))
        nccls = [one._group.nccl for one in (mine, *parts)]
    assert all(nccl is None or nccl._comm is None for nccl in nccls)
    with pytest.raises(BrokenCommunicatorError):
        mine.all_reduce(cp.ones(3))


def test_what_it_cannot_do_is_said_and_done_by_another_way(cp, comm):
    x = np.arange(5, dtype=np.int32) + comm.rank
    for call, reason in (
        (lambda **by: comm.all_reduce(cp.array(x), "xor", **by), "no xor for int32"),
        (lambda **by: comm.scan(cp.array(x), **by), "it knows no scan"),
    ):
        with pytest.raises(UnsupportedError, match=f"by nccl: .*{reason}"):
            call(algorithm="nccl")
        assert call().shape == (5,)
    ordered = comm.with_options(deterministic=True)
    with pytest.raises(UnsupportedError, match="deterministic needs"):
        ordered.all_reduce(cp.array(x), algorithm="nccl")
    assert not told(ordered.all_reduce(cp.array(x)), comm.all_reduce(x))
    if comm.size > 1:
        assert ordered.choose("all_reduce", 8, device="cuda").algorithm != "nccl"


@pytest.mark.parametrize("rows", [4, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_layouts_and_axes(cp, comm, rows, stride):
    x = np.arange(rows * 6.0).reshape(rows, 6)[:, ::stride] * (comm.rank + 1)
    given = cp.array(np.arange(rows * 6.0).reshape(rows, 6) * (comm.rank + 1))
    given = given[:, ::stride]
    wrong = told(comm.all_reduce(given), comm.all_reduce(x))
    for axis in (0, 1):
        wrong += told(comm.all_gather(given, axis), comm.all_gather(x, axis))
        scattered = comm.reduce_scatter(given, axis=axis)
        wrong += told(scattered, comm.reduce_scatter(x, axis=axis))
        wrong += told(comm.all_to_all(given, axis), comm.all_to_all(x, axis))
    assert not wrong
