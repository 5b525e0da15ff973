"""A group's window: places for mail and segments that never overlap."""

from itertools import pairwise

import numpy as np
import pytest

from collectives.arena import private_arena
from collectives.window import (
    ALL_SLOTS_BYTES,
    LEAST_SLOT_BYTES,
    MAIL_BYTES,
    SLOT_BYTES,
    Window,
    part_bytes,
    slot_bytes,
)


def windows(ranks):
    """Return each rank's view of one window."""
    nbytes = part_bytes(ranks)
    arenas = private_arena(ranks, 2 * nbytes)
    places = [arena.carve(nbytes) for arena in arenas]
    return [Window(arena, places) for arena in arenas], places


@pytest.mark.parametrize("ranks", range(1, 201))
def test_slots_are_powers_of_two_and_stay_in_the_cache(ranks):
    size = slot_bytes(ranks)
    assert size & (size - 1) == 0
    assert LEAST_SLOT_BYTES <= size <= SLOT_BYTES
    assert ranks * size <= ALL_SLOTS_BYTES or size == LEAST_SLOT_BYTES
    assert part_bytes(ranks) == 2 * (MAIL_BYTES + size)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 33, 128, 200])
def test_all_places_are_apart_and_inside_of_their_parts(ranks):
    (window, *_), places = windows(ranks)
    mail, byte = window.mail_bytes, np.dtype(np.uint8)
    assert 0 < mail <= MAIL_BYTES
    parts = [window.mail(turn, byte, (mail,)) for turn in (0, 1)]
    parts += window.slots(byte)
    start = window.arena.address
    for rank, place in enumerate(places):
        spans = sorted(
            (part[rank].ctypes.data - start, part[rank].nbytes) for part in parts
        )
        assert all(low + size <= high for (low, size), (high, _) in pairwise(spans))
        assert place <= spans[0][0]
        assert sum(spans[-1]) <= place + part_bytes(ranks)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float64", "complex128"])
def test_what_one_rank_writes_into_its_slot_all_others_read(dtype):
    every, _ = windows(3)
    for turn in (0, 1):
        for rank, window in enumerate(every):
            window.slots(np.dtype(dtype))[turn][rank][:] = 10 * turn + rank
    for turn in (0, 1):
        for window in every:
            slots = window.slots(np.dtype(dtype))[turn]
            for rank, slot in enumerate(slots):
                assert slot.size == window.length(slot.itemsize)
                assert (slot == 10 * turn + rank).all()


@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (2, 0)])
def test_mail_has_the_shape_of_what_is_sent(shape):
    every, _ = windows(2)
    dtype = np.dtype(float)
    for turn in (0, 1):
        every[0].mail(turn, dtype, shape)[0][...] = turn + 1
        seen = every[1].mail(turn, dtype, shape)[0]
        assert seen.shape == shape
        assert (seen == turn + 1).all()
