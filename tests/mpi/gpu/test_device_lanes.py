"""All-reduces of device arrays on several hosts: on GPUs inside, by lanes between."""

import numpy as np
import pytest
from harness.arrays import dtype_of, equal, values
from harness.oracle import reduced

import collectives
from collectives import Options
from collectives.algorithms import device_window
from collectives.device_plans import choose_way
from collectives.kernels import kernel_for

pytestmark = pytest.mark.gpus

HIERARCHICAL = "hierarchical"
SIZES = (0, 1, 3, 1000, 20_001)
CASES = {
    "float32": ("sum", "mean", "max"),
    "float16": ("sum", "mean", "min"),
    "float64": ("sum", "prod"),
    "int16": ("sum", "xor"),
    "int64": ("sum", "mean"),
    "bool": ("or",),
    "complex64": ("sum",),
}


@pytest.fixture(scope="module")
def cp():
    return pytest.importorskip("cupy")


@pytest.fixture(scope="module", params=[1 << 12, 64 << 20])
def lanes(request, comm, cp):
    """Return a communicator of several hosts; the slots of its window may be short."""
    if len(comm.topology.hosts) == 1:
        pytest.skip("on one host; needs --hosts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_window, "SLOT_BYTES", request.param)
        made = collectives.from_mpi(comm.mpi, Options(timeout_s=30))
        made.all_reduce(cp.ones(3), algorithm=HIERARCHICAL)
        yield made
        made.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "op"), [(n, op) for n in CASES for op in CASES[n]])
def test_all_reduce(lanes, cp, name, op, size):
    assert not lanes._group.gpus.refusals.get(HIERARCHICAL)
    everyone = [values(name, op, rank, (size,)) for rank in range(lanes.size)]
    expected, x = reduced(name, op, everyone), cp.asarray(everyone[lanes.rank])
    result = lanes.all_reduce(x, op, algorithm=HIERARCHICAL)
    assert equal(result.get(), expected)
    assert equal(x.get(), everyone[lanes.rank])
    if expected.dtype == dtype_of(name):
        assert lanes.all_reduce(x, op, out=x, algorithm=HIERARCHICAL) is x
        assert equal(x.get(), expected)


def test_auto_takes_it_before_the_host(lanes, monkeypatch):
    kernel = kernel_for("sum", np.dtype(np.int16))
    group, options = lanes._group, lanes.options
    for better in ("nccl", "cuda_aware"):
        monkeypatch.setitem(group.gpus.refusals, better, "a test")
    choice = choose_way("all_reduce", [kernel], group, options, None)
    assert choice is not None and choice.algorithm == HIERARCHICAL
    choice = choose_way("all_gather", [None], group, options, None)
    assert choice is None


def test_other_calls_go_by_the_algorithm_of_the_host_of_that_name(comm, cp):
    x = cp.full(10, 1 + comm.rank, np.float32)
    joined = comm.all_gather(x, algorithm=HIERARCHICAL if comm.size > 1 else None)
    assert equal(joined.get(), np.repeat(np.arange(1, comm.size + 1), 10))
