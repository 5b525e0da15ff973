"""Ranges of sizes, as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import InvalidArgumentError, Options
from collectives.ranges import OPEN, at, names, parse, written

K = 1 << 10


@pytest.mark.parametrize(
    ("nbytes", "name"),
    [(0, "a"), (1, "a"), (8 * K, "a"), (8 * K + 1, "b"), (1 << 40, "b")],
)
def test_a_range_goes_up_to_its_second_size(nbytes, name):
    assert at(parse("a:0-8K;b:8K-max"), nbytes) == name


def test_one_name_is_for_all_sizes():
    assert parse("ring") == ((0, "ring"),)


def test_what_no_range_covers_is_open():
    ranges = parse("a:1K-2K; b:1M-2M")
    assert [at(ranges, n) for n in (0, K, K + 1, 2 * K + 1, 2 << 20, 1 << 30)] == [
        OPEN,
        OPEN,
        "a",
        OPEN,
        "b",
        OPEN,
    ]
    assert names(ranges) == {"a", "b"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "a:", "a:8K", "a:8K-4K", "a:0-0", "a:0-8k", "a:-1-8K", "a:0-8K;", "a b"),
        *("a:0-8K;b:4K-max", "a:0-max;b:8K-max", "a:0-8K,b:8K-max"),
    ],
)
def test_what_is_no_range_is_an_error_that_shows_one(text):
    with pytest.raises(InvalidArgumentError, match="wanted a name, or ranges such as"):
        parse(text)
    with pytest.raises(InvalidArgumentError):
        Options(algorithm=text)


CUTS = st.lists(st.integers(1, 1 << 40), unique=True, max_size=6).map(sorted)
NAMES = st.sampled_from(["a", "b_c", "x+y", OPEN])


@given(CUTS, st.lists(NAMES, min_size=7, max_size=7))
def test_what_is_written_is_read_back(cuts, some):
    ranges = tuple(zip([0, *(cut + 1 for cut in cuts)], some, strict=False))
    text = written(ranges)
    if text:
        for cut in [0, *cuts]:
            for nbytes in (cut, cut + 1):
                assert at(parse(text), nbytes) == at(ranges, nbytes)
    else:
        assert not names(ranges)
