"""Any layout in and out: right values, and nothing beside the arrays is touched."""

import numpy as np
import pytest
from harness.arrays import digest_of, dtype_of, equal, values
from harness.oracle import reduced
from harness.views import SAME_ON_ALL_RANKS, shapes, untouched, views
from hypothesis import given
from hypothesis import strategies as st

DTYPES = ("int16", "uint64", "float16", "float32", "float64", "complex64")
ALGORITHMS = ("auto", "ring", "recursive_doubling", "pairwise")


@st.composite
def layouts(draw, least=0):
    """Return a shape, and a layout for what goes in and for what comes out."""
    shape = draw(shapes(least))
    return shape, draw(views(len(shape))), draw(views(len(shape)))


def placed(view, array):
    """Return memory, and a view of it with the elements of an array."""
    memory, x = view.make(array.shape, array.dtype)
    x[...] = array
    return memory, x


def agreed(comm, complaint):
    """Fail on all ranks if there is a complaint on one: all must draw alike."""
    assert not any(told := comm.all_gather_object(complaint)), told


def complaint(result, expected, memory, out, x, before):
    """Return what is wrong with a result, and with what must not have changed."""
    if result is not out:
        return "something else than out was returned"
    if not equal(result, expected):
        return f"wrong: {result.tolist()}, wanted {expected.tolist()}"
    if digest_of(x) != before:
        return "the input was changed"
    return "" if untouched(memory, out) else "a neighbour was touched"


@SAME_ON_ALL_RANKS
@given(
    layout=layouts(),
    name=st.sampled_from(DTYPES),
    op=st.sampled_from(("sum", "mean", "prod")),
    algorithm=st.sampled_from(ALGORITHMS),
)
def test_all_reduce(comm, layout, name, op, algorithm):
    shape, view_in, view_out = layout
    parts = [values(name, op, rank, shape) for rank in range(comm.size)]
    expected = reduced(name, op, parts)
    _, x = placed(view_in, parts[comm.rank])
    memory, out = view_out.make(shape, expected.dtype)
    before = digest_of(x)
    result = comm.all_reduce(x, op, out=out, algorithm=algorithm)
    agreed(comm, complaint(result, expected, memory, out, x, before))


@SAME_ON_ALL_RANKS
@given(layout=layouts(), name=st.sampled_from(DTYPES))
def test_all_reduce_in_place(comm, layout, name):
    shape, view, _ = layout
    parts = [values(name, "sum", rank, shape) for rank in range(comm.size)]
    memory, x = placed(view, parts[comm.rank])
    comm.all_reduce(x, out=x)
    right = equal(x, reduced(name, "sum", parts))
    agreed(comm, "" if right and untouched(memory, x) else f"{x.tolist()}")


@SAME_ON_ALL_RANKS
@given(layout=layouts(), name=st.sampled_from(DTYPES), data=st.data())
def test_broadcast(comm, layout, name, data):
    shape, view_in, view_out = layout
    root = data.draw(st.integers(0, comm.size - 1))
    _, x = placed(view_in, values(name, "sum", comm.rank, shape))
    memory, out = view_out.make(shape, dtype_of(name))
    expected, before = values(name, "sum", root, shape), digest_of(x)
    result = comm.broadcast(x, root, out=out)
    agreed(comm, complaint(result, expected, memory, out, x, before))


@SAME_ON_ALL_RANKS
@given(layout=layouts(least=1), name=st.sampled_from(DTYPES), data=st.data())
def test_all_gather_of_different_lengths(comm, layout, name, data):
    shape, view_in, view_out = layout
    axis = data.draw(st.integers(0, len(shape) - 1))
    lengths = [(shape[axis] + rank) % 4 for rank in range(comm.size)]
    parts = [
        values(name, "sum", rank, (*shape[:axis], length, *shape[axis + 1 :]))
        for rank, length in enumerate(lengths)
    ]
    expected = np.concatenate(parts, axis)
    _, x = placed(view_in, parts[comm.rank])
    memory, out = view_out.make(expected.shape, expected.dtype)
    before = digest_of(x)
    result = comm.all_gather(x, axis, out=out)
    agreed(comm, complaint(result, expected, memory, out, x, before))


@pytest.mark.ranks(2, 3, 5)
@SAME_ON_ALL_RANKS
@given(layout=layouts(), name=st.sampled_from(DTYPES))
def test_exchange(comm, layout, name):
    shape, view_in, view_out = layout
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    _, x = placed(view_in, values(name, "sum", comm.rank, shape))
    memory, out = view_out.make(shape, dtype_of(name))
    expected, before = values(name, "sum", left, shape), digest_of(x)
    _, result = comm.exchange([(right, x, None), (left, None, out)])
    agreed(comm, complaint(result, expected, memory, out, x, before))
