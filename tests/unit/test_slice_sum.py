"""The kernel that adds up a slice: its text, compiled for the processor."""

from types import SimpleNamespace

import numpy as np
import pytest
from harness import c_kernels
from harness.arrays import DTYPES, KIND_OF, OPS_OF, dtype_of, values
from harness.oracle import reduced, result_dtype

from collectives.gpu import slice_sum
from collectives.kernels import kernel_for

NOT_ON_GPUS = ("longdouble", "clongdouble", "float8_e4m3fn")
NAMES = [name for names in DTYPES.values() for name in names if name not in NOT_ON_GPUS]
CASES = [(name, op) for name in NAMES for op in OPS_OF[KIND_OF[name]]]
SIZE = 37


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Let kernels be those of C, and device arrays NumPy's."""
    folder = tmp_path_factory.mktemp("kernels")
    if not c_kernels.compiler_works(folder):
        pytest.skip("there is no C compiler that knows 16-bit floats")
    with pytest.MonkeyPatch.context() as patch:
        module = SimpleNamespace(
            ElementwiseKernel=c_kernels.maker(folder), empty=np.empty
        )
        patch.setattr(slice_sum, "cupy", lambda: module)
        slice_sum._made.cache_clear()
        yield
    slice_sum._made.cache_clear()


def summed(name, op, parts, targets=1):
    """Return what the kernel makes of the ranks' parts, in every target."""
    kernel, dtype = kernel_for(op, dtype_of(name)), dtype_of(name)
    if kernel.kind != "e":
        dtype = kernel.work_dtype
    ready = [part.astype(dtype) for part in parts]
    results = [np.zeros(parts[0].size, dtype) for _ in range(targets)]
    slice_sum.slice_sum(kernel, dtype, ready, results, len(parts))
    assert all(same(result, results[0]) for result in results)
    return results[0]


def same(a, b):
    return a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all())


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize(("name", "op"), CASES)
def test_every_dtype_and_op(compiled, name, op, ranks):
    parts = [values(name, op, rank, (SIZE,)) for rank in range(ranks)]
    result, expected = summed(name, op, parts), reduced(name, op, parts)
    assert result.dtype == result_dtype(name, op)
    if op == "mean" and KIND_OF[name] == "complex":  # NumPy takes the reciprocal
        assert np.allclose(result, expected, rtol=1e-6)
    else:
        assert same(result, expected)


@pytest.mark.parametrize("name", ["int32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("ranks", [33, 70])
def test_more_ranks_than_a_kernel_takes_go_in_groups(compiled, name, ranks):
    parts = [values(name, "sum", rank, (SIZE,)) for rank in range(ranks)]
    assert same(summed(name, "sum", parts), reduced(name, "sum", parts))


def test_all_targets_get_the_sum(compiled):
    parts = [values("float32", "sum", rank, (SIZE,)) for rank in range(3)]
    expected = reduced("float32", "sum", parts)
    assert same(summed("float32", "sum", parts, targets=40), expected)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["min", "max", "sum"])
def test_nan_and_infinity_are_handed_on(compiled, name, op):
    special = np.array([1, np.nan, np.inf, -np.inf, -0.0], dtype_of(name))
    parts = [np.repeat(special, special.size), np.tile(special, special.size)]
    with np.errstate(all="ignore"):
        expected = reduced(name, op, parts)
    assert same(summed(name, op, parts), expected)


def test_bfloat16_is_rounded_to_the_nearest_even(compiled):
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(dtype_of("bfloat16"))
    y = np.roll(x, 12345)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) + y.astype(np.float32)).astype(x.dtype)
    assert same(summed("bfloat16", "sum", [x, y]), expected)


def test_what_has_no_kernel_is_refused():
    assert slice_sum.refusal(kernel_for("sum", np.dtype("int16"))) == ""
    pairs = np.dtype([("value", "f4"), ("index", "i8")])
    assert "argmin" in slice_sum.refusal(kernel_for("argmin", pairs))
    tiny = dtype_of("float8_e4m3fn")
    assert "float8" in slice_sum.refusal(kernel_for("sum", tiny))
    assert "callable" in slice_sum.refusal(kernel_for(np.add.__call__, np.dtype(float)))
