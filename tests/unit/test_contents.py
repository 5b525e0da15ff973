"""What is compared of results: their numbers, and no byte in between."""

import numpy as np
import pytest

from collectives.contents import _bits

PADDED = [
    np.dtype("g"),
    np.dtype("G"),
    np.dtype([("value", "f8"), ("index", "i4")], align=True),
    np.dtype([("value", "g"), ("index", "i8")]),
]


def bits(array):
    return b"".join(_bits(array))


@pytest.mark.parametrize("dtype", PADDED)
def test_padding_makes_no_difference(dtype):
    same = []
    for fill in (0x00, 0xA5):
        array = np.full((3, 2, dtype.itemsize), fill, np.uint8).view(dtype)[..., 0]
        for name in dtype.names or [...]:
            np.add(1, 1, out=array[name], casting="unsafe")
        same.append(array)
    first, second = map(bits, same)
    assert first == second
    last = same[1][dtype.names[1]] if dtype.names else same[1]
    last[2, 1] = 3
    assert bits(same[1]) != first
    assert bits(same[1][:0]) == b""


def test_signs_and_the_kind_of_nan_count():
    for one, other in [(0.0, -0.0), (np.nan, -np.nan)]:
        for kind in "dg":
            assert bits(np.array([one], kind)) != bits(np.array([other], kind))
