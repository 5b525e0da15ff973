"""Blocks and segments cover everything once, in order, as evenly as integers allow."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.partition import bounds_of, even_bounds, segments


@settings(deadline=None)
@given(count=st.integers(0, 10**12), blocks=st.integers(1, 64))
def test_even_blocks_differ_by_one_element_at_most(count, blocks):
    bounds = even_bounds(count, blocks)
    lengths = [high - low for low, high in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(lengths)) == (0, count, blocks)
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True), "the longer blocks come first"


@pytest.mark.parametrize(
    ("count", "blocks", "bounds"),
    [
        (0, 3, (0, 0, 0, 0)),
        (2, 3, (0, 1, 2, 2)),
        (7, 3, (0, 3, 5, 7)),
        (9, 3, (0, 3, 6, 9)),
        (5, 1, (0, 5)),
    ],
)
def test_even_blocks_by_example(count, blocks, bounds):
    assert even_bounds(count, blocks) == bounds


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000)))
def test_bounds_of_lengths(lengths):
    bounds = bounds_of(lengths)
    assert bounds[0] == 0
    assert [high - low for low, high in pairwise(bounds)] == (lengths)


@settings(deadline=None)
@given(
    start=st.integers(0, 1000), extent=st.integers(0, 1000), length=st.integers(1, 300)
)
def test_segments_join_to_the_range_they_cut(start, extent, length):
    pieces = segments(start, start + extent, length)
    covered = [element for low, high in pieces for element in range(low, high)]
    assert covered == list(range(start, start + extent))
    assert all(high - low == length for low, high in pieces[:-1])
    assert all(0 < high - low <= length for low, high in pieces)
