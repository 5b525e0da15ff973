"""What NCCL is given, reduced with nothing but what NCCL has, is what NumPy gives."""

from functools import reduce
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from collectives.algorithms.nccl_forms import INFINITY, REDUCIBLE, form_of
from collectives.kernels import OPS_OF_KIND, kernel_for, kind_of

REDUCING = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
DTYPES = [
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64",
    "complex64 complex128 bfloat16",
]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
CASES = [
    (dtype, op)
    for name in " ".join(DTYPES).split()
    for dtype in [BFLOAT16 if name == "bfloat16" else np.dtype(name)]
    for op in sorted(OPS_OF_KIND[kind_of(dtype)])
]
REFUSED = {("b", ""), ("i", "and or xor"), ("u", "and or xor"), ("c", "prod")}


def refused(dtype, op):
    return any(kind_of(dtype) == kind and op in ops.split() for kind, ops in REFUSED)


def special(dtype):
    """Return every number that could go wrong, as an array."""
    kind = kind_of(dtype)
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        info = np.iinfo(dtype)
        return np.array(
            [info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max], dtype
        )
    if kind == "c":
        return np.array([0, 1 + 2j, -3.5j, np.inf, np.nan], dtype)
    info = ml_dtypes.finfo(dtype)
    positive = [0.0, info.smallest_subnormal, info.tiny, 1.0, 1.5, info.max, np.inf]
    numbers = np.array([*positive, *(-x for x in positive), np.nan, -np.nan], dtype)
    bits = numbers.view(f"u{dtype.itemsize}")
    signalling = bits.dtype.type(INFINITY[dtype.name] + 1)
    sign = bits.dtype.type(1 << (8 * dtype.itemsize - 1))
    return np.concatenate([bits, [signalling, signalling | sign]]).view(dtype)


def by_nccl(kernel, parts):
    """Reduce as the algorithm does, with NumPy in the place of NCCL's arithmetic."""
    form = form_of(kernel)
    assert form.dtype in REDUCIBLE
    out = np.empty_like(parts[0])
    sides = [form.sides(part, out) for part in parts]
    assert {str(sent.dtype) for sent, _ in sides} == {form.dtype}
    got = sides[0][1]
    if form.op in ("min", "max"):
        assert got.dtype.kind in "iu", "NCCL does not say what becomes of NaN"
    got[...] = reduce(REDUCING[form.op], [sent.copy() for sent, _ in sides])
    if form.decode is not None:
        form.decode(got, out)
    return out


def same(a, b):
    """Tell whether two arrays are equal, or NaN where the other one is."""
    both_nan = (a != a) & (b != b)
    return bool((both_nan | (a == b)).all())


@pytest.mark.parametrize(("dtype", "op"), CASES, ids=str)
@np.errstate(all="ignore")
def test_every_pair_and_triple_of_special_values(dtype, op):
    kernel = kernel_for(op, dtype)
    if refused(dtype, op):
        assert form_of(kernel) is None
        return
    values = special(dtype).astype(kernel.work_dtype)
    for ranks in (2, 3):
        parts = list(map(np.array, zip(*product(values, repeat=ranks), strict=True)))
        parts = [part.astype(kernel.work_dtype) for part in parts]
        expected = reduce(kernel.combine, parts)
        got = by_nccl(kernel, parts)
        assert got.dtype == kernel.work_dtype
        assert same(got, expected)


@pytest.mark.parametrize("name", INFINITY)
@pytest.mark.parametrize("op", ["min", "max"])
@np.errstate(all="ignore")
def test_floats_come_back_with_the_bits_that_they_had(name, op):
    dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
    rng = np.random.default_rng(0)
    if dtype.itemsize == 2:
        values = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    else:
        values = rng.integers(0, 256, 1 << 16, np.uint8).view(dtype)
    number = values[values == values]
    got = by_nccl(kernel_for(op, dtype), [number, number])
    assert got.tobytes() == number.tobytes()
    nan = values[values != values]
    got = by_nccl(kernel_for(op, dtype), [nan, nan[::-1].copy()])
    assert (got != got).all()


def test_min_and_max_tell_the_zeros_apart():
    zeros = np.array([0.0, -0.0], np.float32)
    for op, sign in (("min", True), ("max", False)):
        got = by_nccl(kernel_for(op, zeros.dtype), [zeros, zeros[::-1].copy()])
        assert np.signbit(got).tolist() == [sign, sign]


def test_what_nccl_has_no_numbers_for_is_refused():
    pair = np.dtype([("number", np.float32), ("index", np.int64)])
    kernels = [
        kernel_for("argmin", pair),
        kernel_for("min", np.dtype(ml_dtypes.float8_e4m3fn)),
        kernel_for("sum", np.dtype(np.longdouble)),
        kernel_for(lambda a, b: a, np.dtype(np.float32)),
    ]
    assert [form_of(kernel) for kernel in kernels] == [None] * 4
