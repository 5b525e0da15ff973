"""What callers may pass as arrays, and the flat views that are moved."""

import array
import ctypes

import ml_dtypes
import numpy as np
import pytest

from collectives import InvalidArgumentError, UnsupportedError
from collectives.buffers import (
    as_array,
    as_bytes,
    check_out,
    flat_source,
    flat_work,
    same_memory,
)

F4, F8 = np.dtype("f4"), np.dtype("f8")


class OnlyDLPack:
    """An array as another library has it: nothing but the DLPack methods."""

    def __init__(self, data):
        self.data = data

    def __dlpack__(self, **how):
        return self.data.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()


class OnlyInterface:
    """An array that shows nothing but `__array_interface__`."""

    def __init__(self, data):
        self.data = data
        self.__array_interface__ = data.__array_interface__


class OnDevice:
    """What a CuPy array looks like from here."""

    __cuda_array_interface__ = {"shape": (1,)}  # noqa: RUF012


class Subclass(np.ndarray):
    """A subclass of NumPy's array."""


def source():
    return np.arange(6, dtype=F4)


VIEWED = {
    "array": lambda a: a,
    "strided": lambda a: a[::2],
    "reversed": lambda a: a[::-1],
    "Fortran": lambda a: a.reshape(2, 3).T,
    "0-d": lambda a: a[2:3].reshape(()),
    "subclass": lambda a: a.view(Subclass),
    "memoryview": lambda a: memoryview(a),
    "interface": OnlyInterface,
    "DLPack": OnlyDLPack,
}


@pytest.mark.parametrize("kind", VIEWED)
def test_memory_is_viewed_not_copied(kind):
    a = source()
    given = VIEWED[kind](a)
    seen = as_array(given)
    assert type(seen) is np.ndarray
    assert np.shares_memory(seen, a)
    if seen.flags.writeable:
        assert np.shares_memory(check_out(given, seen.shape, F4), a)
    else:  # what NumPy 1 makes of DLPack
        with pytest.raises(InvalidArgumentError, match="out is read-only"):
            check_out(given, seen.shape, F4)


def test_buffers_of_the_standard_library_are_viewed():
    numbers = array.array("d", [1, 2, 3])
    text = bytearray(b"abc")
    here = (ctypes.c_int32 * 2)(4, 5)
    for given, name, values in [
        (numbers, "float64", [1, 2, 3]),
        (text, "uint8", [97, 98, 99]),
        (b"ab", "uint8", [97, 98]),
        (here, "int32", [4, 5]),
    ]:
        seen = as_array(given)
        assert (seen.dtype, seen.tolist()) == (np.dtype(name), values)
        assert np.shares_memory(as_array(given), as_array(given))
    as_array(numbers)[0] = 9
    assert numbers[0] == 9


@pytest.mark.parametrize(
    ("given", "dtype", "shape"),
    [
        ([1, 2, 3], "int64", (3,)),
        ([[1.5], [2]], "float64", (2, 1)),
        ((True, False), "bool", (2,)),
        ([], "float64", (0,)),
        (3, "int64", ()),
        (2.5, "float64", ()),
        (1j, "complex128", ()),
        (True, "bool", ()),
        (np.float32(1), "float32", ()),
        (range(4), "int64", (4,)),
    ],
)
def test_lists_and_numbers_are_converted(given, dtype, shape):
    seen = as_array(given)
    assert (seen.dtype, seen.shape) == (np.dtype(dtype), shape)
    assert seen.tolist() == np.asarray(given).tolist()


def test_read_only_input_stays_read_only():
    a = source()
    a.flags.writeable = False
    assert not as_array(a).flags.writeable
    assert not as_array(b"abc").flags.writeable


def test_byte_swapped_input_is_copied_into_native_order():
    a = np.arange(3, dtype=">f4")
    seen = as_array(a)
    assert seen.dtype.isnative
    assert seen.tolist() == [0, 1, 2]
    assert not np.shares_memory(seen, a)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("abc", "dtype <U3; wanted bool, integer, float or complex numbers"),
        (["a"], "dtype <U1; wanted"),
        (None, "dtype object; wanted"),
        (object(), "dtype object; wanted"),
        (10**30, "dtype object; wanted"),
        (np.zeros(2, "M8[s]"), r"dtype datetime64\[s\]; wanted"),
        (np.zeros(2, "i4,f4"), "wanted bool, integer"),
        (np.zeros(2, ml_dtypes.int4), "dtype int4; wanted"),
        (OnDevice(), "OnDevice lies on a GPU, .* pass a copy on the host"),
    ],
)
def test_what_is_no_numeric_host_array_is_refused(given, text):
    with pytest.raises(UnsupportedError, match=text):
        as_array(given)


def unaligned(count):
    return np.zeros(count * 4 + 1, np.uint8)[1:].view(F4)


def read_only(shape):
    a = np.zeros(shape, F4)
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (
            np.zeros((3, 2), F4),
            InvalidArgumentError,
            "out has shape (3, 2); wanted (2, 3)",
        ),
        (np.zeros(6, F4), InvalidArgumentError, "out has shape (6,); wanted (2, 3)"),
        (
            np.zeros((2, 3), F8),
            InvalidArgumentError,
            "out has dtype float64; wanted float32",
        ),
        (
            np.zeros((2, 3), ">f4"),
            InvalidArgumentError,
            "out has dtype >f4; wanted float32",
        ),
        (
            read_only((2, 3)),
            InvalidArgumentError,
            "out is read-only; wanted a writeable array",
        ),
        (
            [[0.0] * 3] * 2,
            UnsupportedError,
            "out is a list; wanted an array that can be written into",
        ),
        (1.5, UnsupportedError, "out is a float; wanted"),
        (OnDevice(), UnsupportedError, "OnDevice lies on a GPU"),
    ],
)
def test_an_out_that_cannot_take_the_result_is_refused(out, error, text):
    with pytest.raises(error) as caught:
        check_out(out, (2, 3), F4)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("scalar", [np.float32(0), np.zeros(3, F4)[0]])
def test_a_scalar_cannot_be_out(scalar):
    """What is written into it would be written into a copy, and lost."""
    with pytest.raises(UnsupportedError, match="out is a float32; wanted an array"):
        check_out(scalar, (), F4)


def test_flat_source_is_aligned():
    """MPI cannot send arrays of numbers from odd addresses."""
    given = unaligned(6)
    given[:] = np.arange(6)
    flat = flat_source(given, F4)
    assert flat.flags.aligned
    assert flat.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["array", "strided", "reversed", "Fortran", "0-d"])
@pytest.mark.parametrize("dtype", [F4, F8])
def test_flat_source_has_the_elements_in_c_order(kind, dtype):
    given = VIEWED[kind](source())
    flat = flat_source(given, dtype)
    assert flat.dtype == dtype
    assert flat.flags.c_contiguous
    assert flat.tolist() == [float(x) for x in np.nditer(given, order="C")]


def test_flat_source_views_where_it_can():
    a = source()
    for given in (a, a.reshape(2, 3), a.reshape(3, 2, 1)):
        assert np.shares_memory(flat_source(given, F4), a)


@pytest.mark.parametrize(
    ("out", "dtype", "direct"),
    [
        (np.zeros((2, 3), F4), F4, True),
        (np.zeros((), F4), F4, True),
        (np.zeros((0, 3), F4), F4, True),
        (np.zeros((2, 3), F4), F8, False),
        (np.zeros((2, 3), F4, order="F"), F4, False),
        (np.zeros((4, 3), F4)[::2], F4, False),
        (np.zeros(6, F4)[::-1], F4, False),
        (unaligned(6), F4, False),
    ],
)
def test_work_happens_in_out_where_possible(out, dtype, direct):
    work, told = flat_work(out, dtype)
    assert told == direct
    assert (work.dtype, work.shape) == (dtype, (out.size,))
    assert work.flags.c_contiguous
    assert work.flags.aligned
    assert np.shares_memory(work, out) == (direct and out.size > 0)


def test_same_memory_wants_the_very_same_elements():
    a = source()
    assert same_memory(a, a)
    assert same_memory(a, a[:])
    assert not same_memory(a, a[:5])
    assert not same_memory(a, a.copy())
    assert not same_memory(a[:3], a[3:])


@pytest.mark.parametrize("name", ["bool", "complex128", ml_dtypes.bfloat16])
def test_bytes_of_a_flat_array(name):
    a = np.ones(3, name)
    seen = as_bytes(a)
    assert (seen.dtype, seen.nbytes) == (np.dtype("u1"), a.nbytes)
    assert np.shares_memory(seen, a)
