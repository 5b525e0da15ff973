"""Messages between pairs of ranks."""

import numpy as np
import pytest

from collectives import InvalidArgumentError, MismatchError

RING = pytest.mark.ranks(2, 3, 5)


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


@RING
@pytest.mark.parametrize("shape", [(), (0,), (7,), (300, 500)])
def test_around_the_ring(comm, shape):
    right, left = neighbours(comm)
    out = np.empty(shape)
    comm.exchange([(right, np.full(shape, float(comm.rank)), None), (left, None, out)])
    assert (out == left).all()


@RING
def test_strided_arrays_and_their_surroundings(comm):
    right, left = neighbours(comm)
    field = np.full((6, 8), float(comm.rank))
    halo = np.full((6, 8), -1.0)
    comm.exchange([(right, field[:, -1], None), (left, None, halo[:, 0])])
    assert (halo[:, 0] == left).all()
    assert (halo[:, 1:] == -1).all()


@RING
def test_what_is_sent_may_be_overwritten_by_what_comes(comm):
    right, left = neighbours(comm)
    for size in (10, 300_000):
        x = np.full(size, float(comm.rank))
        comm.exchange([(right, x, None), (left, None, x)])
        assert (x == left).all()


@pytest.mark.ranks(2)
def test_send_and_recv(comm):
    if comm.rank == 0:
        comm.send(np.arange(1000), 1)
    else:
        out = np.zeros(1000, int)
        assert comm.recv(out, 0) is out
        assert (out == np.arange(1000)).all()


@RING
@pytest.mark.parametrize("other", [np.zeros(4), np.zeros((3, 1)), np.zeros(3, "f4")])
def test_another_shape_or_dtype_is_an_error_and_the_pair_goes_on(comm, other):
    right, left = neighbours(comm)
    wanted = other.copy()
    with pytest.raises(MismatchError, match=f"rank {left} sent float64"):
        comm.exchange([(right, np.ones(3), None), (left, None, other)])
    assert (other == wanted).all()
    out = np.zeros(3)
    comm.exchange([(right, np.ones(3), None), (left, None, out)])
    assert out.tolist() == [1, 1, 1]


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("peer", [-1, 2, 0.5, None])
def test_a_peer_that_is_not_there_is_an_error(comm, peer):
    with pytest.raises(InvalidArgumentError, match="peer is"):
        comm.send(np.ones(3), peer)


def test_a_message_to_oneself_is_refused(comm):
    with pytest.raises(InvalidArgumentError, match="this rank itself"):
        comm.send(np.ones(3), comm.rank)
