"""The layouts that hypothesis draws are what they say, and touching is noticed."""

import numpy as np
from harness.views import shapes, untouched, views
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(deadline=None)
@given(data=st.data(), shape=shapes(), name=st.sampled_from(("i1", "f4", "c16")))
def test_a_view_has_its_shape_and_shares_no_element(data, shape, name):
    memory, view = data.draw(views(len(shape))).make(shape, np.dtype(name))
    assert (view.shape, view.dtype) == (shape, np.dtype(name))
    numbers = np.arange(view.size).reshape(shape)
    view[...] = numbers
    assert (view == numbers).all()
    assert untouched(memory, view)
    memory[-1:] = 0
    assert untouched(memory, view) == (memory[-1:] == 0x55).all()


@settings(deadline=None)
@given(data=st.data(), shape=shapes(1))
def test_a_touched_neighbour_is_noticed(data, shape):
    memory, view = data.draw(views(len(shape))).make(shape, np.dtype("f8"))
    for place in range(memory.size):
        memory[place] = 0
        noticed = not untouched(memory, view)
        assert noticed == (memory[place] == 0)
        memory[place] = 0x55
