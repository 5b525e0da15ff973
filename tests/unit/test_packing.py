"""Packs hold every array once, in order, and never more than they may."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.packing import AUTO_PACK_BYTES, make_packs, pack_into, unpack

BYTES, HALVES, DOUBLES = (np.dtype(name) for name in ("u1", "f2", "f8"))

arrays = st.lists(
    st.tuples(st.sampled_from([BYTES, HALVES, DOUBLES]), st.integers(0, 40))
)


@settings(deadline=None)
@given(arrays, st.integers(0, 100))
def test_every_position_is_in_one_pack_of_its_dtype(arrays, limit):
    dtypes, sizes = [d for d, _ in arrays], [n for _, n in arrays]
    packs = make_packs(dtypes, sizes, limit)
    members = [position for pack in packs for position in pack.members]
    assert sorted(members) == list(range(len(arrays)))
    for pack in packs:
        assert list(pack.members) == sorted(pack.members)
        assert {dtypes[position] for position in pack.members} == {pack.dtype}
        assert pack.elements == sum(sizes[position] for position in pack.members)
    firsts = [pack.members[0] for pack in packs]
    assert firsts == sorted(firsts)


@settings(deadline=None)
@given(arrays, st.integers(1, 100))
def test_a_pack_keeps_to_the_limit_unless_it_is_one_large_array(arrays, limit):
    packs = make_packs([d for d, _ in arrays], [n for _, n in arrays], limit)
    for pack in packs:
        nbytes = pack.elements * pack.dtype.itemsize
        assert nbytes <= limit or len(pack.members) == 1


@settings(deadline=None)
@given(arrays, st.integers(1, 100))
def test_an_array_of_the_limit_or_more_travels_alone(arrays, limit):
    dtypes, sizes = [d for d, _ in arrays], [n for _, n in arrays]
    for pack in make_packs(dtypes, sizes, limit):
        for position in pack.members:
            if sizes[position] * dtypes[position].itemsize >= limit:
                assert pack.members == (position,)


@pytest.mark.parametrize(
    ("sizes", "limit", "members"),
    [
        ([], 8, []),
        ([0, 0], 8, [(0, 1)]),
        ([4, 4, 1], 8, [(0, 1), (2,)]),
        ([4, 8, 4], 8, [(0, 2), (1,)]),
        ([9, 1, 9], 8, [(0,), (1,), (2,)]),
        ([1] * 5, 1, [(0,), (1,), (2,), (3,), (4,)]),
        ([1] * 5, 1 << 60, [(0, 1, 2, 3, 4)]),
    ],
)
def test_packs_by_example(sizes, limit, members):
    packs = make_packs([BYTES] * len(sizes), sizes, limit)
    assert [pack.members for pack in packs] == members


def test_zero_bytes_means_the_automatic_limit():
    half = AUTO_PACK_BYTES // 2
    packs = make_packs([BYTES] * 4, [half, half, half, AUTO_PACK_BYTES], 0)
    assert [pack.members for pack in packs] == [(0, 1), (2,), (3,)]


def test_dtypes_fill_their_own_packs_side_by_side():
    packs = make_packs([BYTES, DOUBLES, BYTES, DOUBLES], [1, 1, 1, 1], 100)
    assert [pack.members for pack in packs] == [(0, 2), (1, 3)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 20)))
def test_what_is_packed_can_be_unpacked(sizes):
    flats = [np.arange(n) + 100 * place for place, n in enumerate(sizes)]
    buffer = np.empty(sum(sizes), int)
    if flats:
        pack_into(buffer, flats)
    parts = unpack(buffer, sizes)
    assert len(parts) == len(flats)
    for part, flat in zip(parts, flats, strict=True):
        np.testing.assert_array_equal(part, flat)
        assert part.size == 0 or np.shares_memory(part, buffer)
