"""Device pointers given to the MPI's own collectives, on pretended devices.

Their memory is the host's, so that every MPI can do it; what is shown is what it is
given and when. The double objects to memory whose stream has not been waited for.
"""

import os
import tempfile

import numpy as np
import pytest

import collectives
from collectives import Options
from collectives.algorithms.on_device import WAYS
from collectives.gpu import proving

pytestmark = [pytest.mark.gpus, pytest.mark.one_host]

COUNT = 1003


@pytest.fixture(scope="module")
def aware(comm):
    """Return a communicator over an MPI that says that it can, and does."""
    import cupy

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as home:
        patch.setenv("XDG_CACHE_HOME", home)
        patch.setattr(proving, "word", lambda path: "")
        made = collectives.from_mpi(comm.mpi, Options(timeout_s=100))
        made.all_reduce(cupy.zeros(1), algorithm="cuda_aware")  # opens
        kept = os.listdir(home)
    assert comm.all_gather_object(kept)[0] == ["ringfold"]
    yield made
    made.close()


def given(rank, dtype="float32", count=COUNT):
    return ((np.arange(count) * 5 + rank * 3) % 13).astype(dtype)


def everyones(comm, dtype="float32", count=COUNT):
    return [given(rank, dtype, count) for rank in range(comm.size)]


@pytest.mark.ranks(2, 3, 4)
def test_it_is_proved_for_all_ranks_and_named(aware):
    assert not any(aware._group.gpus.proof.values())
    assert aware._group.gpus.proof.keys() == proving.OPERATIONS.keys()


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16", "int32"])
@pytest.mark.parametrize("op", ["sum", "mean", "prod"])
def test_reductions(aware, dtype, op):
    import cupy

    parts = everyones(aware, dtype)
    x = cupy.asarray(parts[aware.rank])
    ufunc = np.multiply if op == "prod" else np.add
    wide = np.float32 if dtype == "float16" else parts[0].dtype
    if op == "mean" and np.dtype(wide).kind == "i":
        wide = np.float64
    total = ufunc.reduce([part.astype(wide) for part in parts])
    if op == "mean":
        total = total / wide(aware.size) if callable(wide) else total / aware.size
    total = total.astype(dtype if np.dtype(dtype).kind == "f" else total.dtype)
    way, root = "cuda_aware", aware.size - 1
    assert np.array_equal(aware.all_reduce(x, op, algorithm=way).get(), total)
    reduced = aware.reduce(x, op, root, algorithm=way)
    assert (reduced is None) == (aware.rank != root)
    if reduced is not None:
        assert np.array_equal(reduced.get(), total)
    part = aware.reduce_scatter(x, op, algorithm=way)
    bounds = np.cumsum([0, *(len(p) for p in np.array_split(total, aware.size))])
    own = total[bounds[aware.rank] : bounds[aware.rank + 1]]
    assert np.array_equal(part.get(), own)


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("dtype", ["float32", "bool", "complex128", "uint16"])
def test_moves(aware, dtype):
    import cupy

    parts, way, root = everyones(aware, dtype), "cuda_aware", aware.size - 1
    x = cupy.asarray(parts[aware.rank])
    sent = aware.broadcast(x.copy(), root, algorithm=way)
    assert np.array_equal(sent.get(), parts[root])
    whole = aware.all_gather(x, algorithm=way)
    assert np.array_equal(whole.get().reshape(-1), np.concatenate(parts))
    rows = cupy.asarray(given(aware.rank, dtype, 3 * aware.size)).reshape(-1, 3)
    exchanged = aware.all_to_all(rows, algorithm=way)
    columns = everyones(aware, dtype, 3 * aware.size)
    wanted = [part.reshape(-1, 3)[aware.rank] for part in columns]
    assert np.array_equal(exchanged.get().reshape(-1, 3), wanted)


@pytest.mark.ranks(2, 3, 4)
def test_what_is_still_being_written_is_waited_for(aware):
    import cupy

    with cupy.cuda.Stream(non_blocking=True):
        for turn in range(20):
            x = cupy.zeros(4096)
            for _ in range(10):
                x += 1
            total = aware.all_reduce(x, algorithm="cuda_aware")
            x *= turn  # afterwards: the MPI must be done with it
            assert np.array_equal(total.get(), np.full(4096, 10.0 * aware.size))


@pytest.mark.ranks(2, 3, 4)
def test_what_was_not_proved_is_refused_on_every_rank(aware, monkeypatch):
    import cupy

    text = "MPI_Allreduce of device memory: the probe was ended by SIGSEGV"
    monkeypatch.setitem(aware._group.gpus.proof, "Allreduce", text)
    with pytest.raises(collectives.UnsupportedError, match="SIGSEGV"):
        aware.all_reduce(cupy.ones(3), algorithm="cuda_aware")
    aware.broadcast(cupy.ones(3), algorithm="cuda_aware")


@pytest.mark.ranks(2)
def test_an_mpi_that_says_no_is_never_asked(comm):
    import cupy

    with pytest.raises(collectives.UnsupportedError, match="says that it is not"):
        comm.all_reduce(cupy.ones(3), algorithm="cuda_aware")


@pytest.mark.ranks(1)
def test_it_comes_before_staging_and_after_what_needs_no_mpi(comm):
    ways = list(WAYS)
    before = ways[: ways.index("cuda_aware")]
    assert set(before) <= {"alone", "nccl", "cuda_ipc", "nccl_exchange"}
