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


@pytest.mark.ranks(2, 3, 5)
def test_periodic_neighbours_that_may_be_the_same_rank(comm):
    right, left = neighbours(comm)
    field = np.array([-1.0, 10 * comm.rank, 10 * comm.rank + 1, -1.0])
    comm.exchange(
        [
            (right, field[-2], None, "right"),
            (left, field[1], None, "left"),
            (right, None, field[-1:].reshape(()), "left"),
            (left, None, field[:1].reshape(()), "right"),
        ]
    )
    assert field[0] == 10 * left + 1
    assert field[-1] == 10 * right


@pytest.mark.ranks(2)
def test_tags_pair_whatever_the_order(comm):
    tags = ["a", 1, "1", None, np.int64(7)]
    mine = tags if comm.rank else tags[::-1]
    outs = [np.zeros(2 + tags.index(tag)) for tag in mine]
    peer = 1 - comm.rank
    comm.exchange(
        [(peer, np.full(2 + n, float(n)), None, tag) for n, tag in enumerate(tags)]
        + [(peer, None, out, tag) for tag, out in zip(mine, outs, strict=True)]
    )
    for tag, out in zip(mine, outs, strict=True):
        assert (out == tags.index(tag)).all()


@pytest.mark.ranks(2)
def test_a_tag_that_is_not_wanted_is_an_error_and_the_pair_goes_on(comm):
    peer = 1 - comm.rank
    out = np.zeros(3)
    with pytest.raises(MismatchError) as caught:
        comm.exchange([(peer, np.ones(3), out, f"of rank {comm.rank}")])
    sent, wanted = f"with tag 'of rank {peer}'", f"with tag 'of rank {comm.rank}'"
    assert f"sent float64 (3,) {sent}; wanted float64 (3,) {wanted}" in str(
        caught.value
    )
    assert (out == 0).all()
    comm.exchange([(peer, np.ones(3), out)])
    assert (out == 1).all()


@pytest.mark.ranks(2)
@pytest.mark.parametrize("tag", [None, 3, "x"])
@pytest.mark.parametrize("doing", ["send to", "receive from"])
def test_two_messages_that_cannot_be_told_apart_are_refused(comm, doing, tag):
    peer, x = 1 - comm.rank, np.zeros(2)
    x_out = (x, None) if doing == "send to" else (None, x)
    wanted = f"pairs 0 and 2 both {doing} rank {peer} .*give them different tags"
    with pytest.raises(InvalidArgumentError, match=wanted):
        comm.exchange([(peer, *x_out, tag), (peer, x, x, "y"), (peer, *x_out, tag)])
    comm.barrier()


@pytest.mark.ranks(2)
@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        (None, "pairs is None; wanted a list of"),
        (3.0, "pairs is 3.0"),
        ("ab", "pairs is 'ab'"),
        ([(1, 2.0)], "pair 0 is a tuple of 2; wanted"),
        ([7], "pair 0 is a int; wanted"),
        ([(None, np.ones(2), None)], "peer is None; wanted a rank"),
        ([(7, np.ones(2), None)], "peer is 7; wanted a rank"),
        ([(0, None, None, 0.5), (1, None, None, 0.5)], "tag is 0.5|this rank itself"),
    ],
)
def test_odd_pairs_are_errors(comm, pairs, text):
    with pytest.raises(InvalidArgumentError, match=text):
        comm.exchange(pairs)
    assert comm.all_reduce(1).item() == 2


@pytest.mark.ranks(2)
def test_nothing_can_be_neither_sent_nor_received(comm):
    peer = 1 - comm.rank
    with pytest.raises(InvalidArgumentError, match="x is None; wanted an array"):
        comm.send(None, peer)
    with pytest.raises(InvalidArgumentError, match="out is None; wanted an array"):
        comm.recv(None, peer)


@pytest.mark.ranks(2)
def test_what_is_no_array_moves_nothing(comm):
    with pytest.raises(ValueError, match="inhomogeneous"):
        comm.send([[1.0], [1.0, 2.0]], 1 - comm.rank)
    assert comm.all_reduce(1).item() == 2
