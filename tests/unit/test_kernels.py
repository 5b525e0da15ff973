"""Which op works on which dtype, in what arithmetic, and what comes out."""

import ml_dtypes
import numpy as np
import pytest

from collectives import OPS, InvalidArgumentError, ReduceOp, UnsupportedError
from collectives.kernels import check_op, identity, kernel_for, kind_of

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
WIDE = ["float32", "float64", "longdouble"]
NARROW = ["float16", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
PAIR = np.dtype([("value", "float32"), ("index", "int64")])
NO_PAIRS = [op for op in OPS if not op.startswith("arg")]
COMPLEX = ["complex64", "complex128", "clongdouble"]

# dtypes -> op -> dtype that travels, dtype of the result; "=" is the input's own.
SAME = ("=", "=")
RULES = [
    (["bool"], dict.fromkeys(("min", "max", "and", "or", "xor"), SAME)),
    (
        SIGNED + UNSIGNED,
        {**dict.fromkeys(NO_PAIRS, SAME), "mean": ("float64", "float64")},
    ),
    (WIDE, dict.fromkeys(("sum", "mean", "prod", "min", "max"), SAME)),
    (
        NARROW,
        {
            **dict.fromkeys(("sum", "mean", "prod"), ("float32", "=")),
            **dict.fromkeys(("min", "max"), SAME),
        },
    ),
    (COMPLEX, dict.fromkeys(("sum", "mean", "prod"), SAME)),
    ([PAIR], dict.fromkeys(("argmin", "argmax"), SAME)),
]
TABLE = [
    (op, np.dtype(name), ops.get(op)) for names, ops in RULES for name in names
    for op in OPS
]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype", "rule"), TABLE)
def test_op_and_dtype(op, dtype, rule):
    if rule is None:
        with pytest.raises(UnsupportedError) as caught:
            kernel_for(op, dtype)
        text = str(caught.value)
        assert text.startswith(f"op {op} of dtype {dtype};")
        possible = [known for known, d, found in TABLE if d == dtype and found]
        assert text.endswith(f"that dtype has: {' '.join(possible)}")
    else:
        kernel = kernel_for(op, dtype)
        work, result = (dtype if name == "=" else np.dtype(name) for name in rule)
        assert (kernel.op, kernel.work_dtype, kernel.result_dtype) == (op, work, result)


@pytest.mark.parametrize(
    "dtype", ["U3", "S3", "O", "M8[s]", "m8[s]", "V4", "i4,f4", ml_dtypes.int4]
)
def test_what_is_no_number_has_no_reduction(dtype):
    assert kind_of(np.dtype(dtype)) == ""
    with pytest.raises(UnsupportedError, match="no reduction"):
        kernel_for("sum", np.dtype(dtype))


@pytest.mark.parametrize(
    ("op", "a", "b", "result"),
    [
        ("sum", [1, 2], [3, -4], [4, -2]),
        ("mean", [1, 2], [3, -4], [4, -2]),  # divided by `finish`
        ("prod", [1, 2], [3, -4], [3, -8]),
        ("min", [1, 2], [3, -4], [1, -4]),
        ("max", [1, 2], [3, -4], [3, 2]),
        ("and", [6, 12], [3, 5], [2, 4]),
        ("or", [6, 12], [3, 5], [7, 13]),
        ("xor", [6, 12], [3, 5], [5, 9]),
    ],
)
def test_what_an_op_does(op, a, b, result):
    out = np.zeros(2, np.int32)
    kernel_for(op, out.dtype).combine(np.int32(a), np.int32(b), out=out)
    assert out.tolist() == result


@pytest.mark.parametrize(
    ("op", "table"),
    [
        ("min", [False, False, False, True]),
        ("max", [False, True, True, True]),
        ("and", [False, False, False, True]),
        ("or", [False, True, True, True]),
        ("xor", [False, True, True, False]),
    ],
)
def test_truth_tables(op, table):
    a, b = np.array([False, False, True, True]), np.array([False, True] * 2)
    out = np.zeros(4, bool)
    kernel_for(op, out.dtype).combine(a, b, out=out)
    assert out.tolist() == table


@pytest.mark.parametrize("name", [*WIDE, *NARROW])
@pytest.mark.parametrize("op", ["min", "max"])
def test_min_and_max_hand_nan_on_from_either_side(name, op):
    kernel = kernel_for(op, np.dtype(name))
    a, b = np.array([np.nan, 1, 2], name), np.array([1, np.nan, 3], name)
    out = np.zeros(3, name)
    with np.errstate(invalid="ignore"):
        kernel.combine(a, b, out=out)
    assert (out != out).tolist() == [True, True, False]


@pytest.mark.parametrize("name", ["float32", "complex64", "longdouble"])
def test_only_mean_is_divided_and_only_among_several(name):
    for op, ranks, wanted in [("mean", 4, 1.5), ("mean", 1, 6), ("sum", 4, 6)]:
        array = np.full(3, 6, name)
        kernel_for(op, array.dtype).finish(array, ranks)
        assert array.tolist() == [wanted] * 3


def test_an_op_by_any_of_its_names():
    assert tuple(op.value for op in ReduceOp) == OPS
    for op in ReduceOp:
        for name in (op, op.value, op.value.upper()):
            assert check_op(name) == op.value


@pytest.mark.parametrize("op", ["average", "", None, 3, ["sum"]])
def test_an_unknown_op_is_an_error_that_lists_the_known(op):
    with pytest.raises(InvalidArgumentError) as caught:
        check_op(op)
    assert str(caught.value) == (
        f"unknown op {op!r}; known: {' '.join(OPS)}, or a function of two arrays"
    )


def test_a_function_is_an_op():
    kernel = kernel_for(np.hypot, np.dtype("float64"))
    assert kernel.in_order
    out = np.empty(2)
    kernel.combine(np.array([3.0, 5.0]), np.array([4.0, 12.0]), out=out)
    assert out.tolist() == [5, 13]


@pytest.mark.parametrize(
    ("op", "a", "b", "wanted"),
    [
        ("argmin", (1, 0), (2, 1), (1, 0)),
        ("argmax", (1, 0), (2, 1), (2, 1)),
        ("argmin", (1, 5), (1, 3), (1, 3)),
        ("argmax", (1, 3), (1, 5), (1, 3)),
        ("argmin", (np.nan, 5), (1, 3), (np.nan, 5)),
        ("argmax", (9, 5), (np.nan, 3), (np.nan, 3)),
        ("argmax", (np.nan, 5), (np.nan, 3), (np.nan, 3)),
    ],
)
def test_pairs(op, a, b, wanted):
    out = np.empty(1, PAIR)
    kernel_for(op, PAIR).combine(np.array([a], PAIR), np.array([b], PAIR), out=out)
    assert repr(out.tolist()) == repr(np.array([wanted], PAIR).tolist())


IDENTITY = [
    (op, dtype)
    for op, dtypes in {
        "sum": ["int8", "uint16", "float32", "complex64", "float16"],
        "prod": ["int8", "float64", "complex128"],
        "min": ["bool", "int8", "uint64", "float32", "float16"],
        "max": ["bool", "int8", "uint64", "float32", "float16"],
        "and": ["bool", "int32", "uint8"],
        "or": ["bool", "int32", "uint8"],
        "xor": ["bool", "int32", "uint8"],
    }.items()
    for dtype in dtypes
]


@pytest.mark.parametrize(("op", "dtype"), IDENTITY)
def test_the_identity_changes_nothing(op, dtype):
    kernel = kernel_for(op, np.dtype(dtype))
    values = np.array([0, 1, 2, 100, 127]).astype(kernel.work_dtype)
    nothing = np.full_like(values, identity(kernel))
    out = np.empty_like(values)
    kernel.combine(nothing, values, out=out)
    assert out.tolist() == values.tolist()


def test_a_function_has_no_identity():
    with pytest.raises(UnsupportedError, match="no identity"):
        identity(kernel_for(np.hypot, np.dtype("float64")))
