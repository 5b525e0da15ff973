"""Several arrays go through a window as if they were one."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.laid import layout
from collectives.partition import even_bounds

LISTS = st.lists(st.integers(0, 40), min_size=1, max_size=8)
RANKS, LENGTHS = st.integers(1, 6), st.integers(1, 20)


def arrays_of(sizes):
    """Return arrays whose elements are all different."""
    bounds = np.cumsum([0, *sizes])
    return [np.arange(low, high) for low, high in pairwise(bounds)]


@settings(deadline=None)
@given(sizes=LISTS, ranks=RANKS, length=LENGTHS)
def test_the_pieces_in_order_are_the_arrays_end_to_end(sizes, ranks, length):
    arrays, whole = arrays_of(sizes), np.arange(sum(sizes))
    bounds = even_bounds(whole.size, ranks)
    for rank in range(ranks):
        rounds = layout(tuple(sizes), ranks, rank, length)
        for block in range(ranks):
            pieces = [
                piece
                for one in rounds
                for piece in (one.own if block == rank else one.others)
                if piece.block == block
            ]
            found = [arrays[p.array][p.start : p.stop] for p in pieces]
            wanted = whole[bounds[block] : bounds[block + 1]]
            assert np.concatenate([whole[:0], *found]).tolist() == wanted.tolist()


@settings(deadline=None)
@given(sizes=LISTS, ranks=RANKS, length=LENGTHS)
def test_in_a_slot_pieces_lie_apart_in_the_place_of_their_block(sizes, ranks, length):
    for one in layout(tuple(sizes), ranks, 0, length):
        used = np.zeros(ranks * length, int)
        for piece in (*one.own, *one.others):
            assert piece.high - piece.low == piece.stop - piece.start > 0
            assert piece.block * length <= piece.low
            assert piece.high <= (piece.block + 1) * length
            used[piece.low : piece.high] += 1
        assert used.max(initial=0) == 1


@settings(deadline=None)
@given(sizes=LISTS, ranks=RANKS, length=LENGTHS)
def test_all_ranks_see_the_same_pieces_each_from_its_side(sizes, ranks, length):
    views = [layout(tuple(sizes), ranks, rank, length) for rank in range(ranks)]
    assert len({len(view) for view in views}) == 1
    for rounds in zip(*views, strict=True):
        every = [sorted((*one.own, *one.others)) for one in rounds]
        assert all(pieces == every[0] for pieces in every)
        for rank, one in enumerate(rounds):
            assert {piece.block for piece in one.own} <= {rank}


def test_nothing_takes_no_round():
    assert len(layout((0, 0), 3, 1, 5)) == 0
    assert list(layout((0, 0), 3, 1, 5)) == []


def test_layouts_of_large_arrays_take_no_memory():
    """A gigabyte in little segments has millions of rounds."""
    large = layout((1 << 30, 5), 33, 3, 7)
    few = layout((1 << 10, 5), 33, 3, 7)
    assert len(large) > 4_000_000
    for number in range(0, len(large), 100_000):
        assert large[number].own[0].start >= 7 * number
    assert len(large._made) <= 2
    assert list(few) == list(few) == [few[number] for number in range(len(few))]
