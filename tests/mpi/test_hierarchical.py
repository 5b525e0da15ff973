"""Two levels on pretended hosts: many rounds, odd lengths, any placement of ranks."""

import numpy as np
import pytest
from harness.cases import impossible

from collectives import SHARED, UnsupportedError
from collectives.algorithms import REDUCING, TABLE

NAMES = ("hierarchical", "hierarchical_copy")


def numbers(rank, size, dtype="float32"):
    return np.random.default_rng([3, rank]).standard_normal(size).astype(dtype)


def close(result, parts):
    """Compare with the sum in float64: each host adds up its own ranks first."""
    np.testing.assert_allclose(result, np.sum(parts, 0, np.float64), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 2, 1001, 30_000])
def test_sums_have_the_same_bits_on_all_ranks(ranks, name, size):
    parts = [numbers(rank, size) for rank in range(ranks.size)]
    x = parts[ranks.rank].copy()
    y = ranks.all_reduce(x, algorithm=name)
    close(y, parts)
    mean = ranks.all_reduce(x, "mean", out=x, algorithm=name)
    assert mean is x
    np.testing.assert_array_equal(mean, y / np.float32(ranks.size))
    assert len(set(ranks.all_gather_object(y.tobytes()))) == 1
    again = ranks.with_options(segment_bytes=1 << 19)
    assert again.all_reduce(parts[ranks.rank], algorithm=name).tobytes() == y.tobytes()


def test_the_chain_of_hosts_adds_strictly_by_rank(ranks):
    by = {"algorithm": "hierarchical_chain"}
    strict = ranks.with_options(deterministic=True)
    if why := impossible(ranks, "all_reduce", "hierarchical_chain"):
        with pytest.raises(UnsupportedError, match=why):
            strict.all_reduce(np.ones(9), **by)
        return
    for size in (1, 2, 1001, 30_000):
        x = numbers(ranks.rank, size)
        wanted = strict.all_reduce(x, algorithm="chain")
        assert strict.all_reduce(x, **by).tobytes() == wanted.tobytes()
        shorter = strict.with_options(segment_bytes=256)
        assert shorter.all_reduce(x, **by).tobytes() == wanted.tobytes()
        parts = strict.all_reduce_many(np.array_split(x, 5), **by)
        assert np.concatenate(parts).tobytes() == wanted.tobytes()
        narrow = x.astype(np.float16)
        same = strict.all_reduce(narrow, algorithm="chain").tobytes()
        assert strict.all_reduce(narrow, **by).tobytes() == same
    joined = ranks.all_reduce(2.0 + ranks.rank, lambda a, b: 10 * a + b, **by)
    assert joined == ranks.all_reduce(2.0 + ranks.rank, lambda a, b: 10 * a + b)


def test_a_list_flows_without_packs(ranks):
    shapes = [(3,), (1000, 7), (), (0, 4), (5000,), (1,)]
    mine = [numbers(ranks.rank, shape) for shape in shapes]
    sums = ranks.all_reduce_many(mine, algorithm="hierarchical")
    for shape, result in zip(shapes, sums, strict=True):
        close(result, [numbers(rank, shape) for rank in range(ranks.size)])
    mixed = [np.full(900, ranks.rank, dtype) for dtype in ("int32", "float16")]
    for result in ranks.all_reduce_many(mixed, algorithm="hierarchical"):
        assert (result == sum(range(ranks.size))).all()


def test_every_root_and_every_lengths(ranks):
    size, rank = ranks.size, ranks.rank
    by = {"algorithm": "hierarchical"}
    for root in range(size):
        x = np.arange(20_001) + (rank == root)
        np.testing.assert_array_equal(
            ranks.broadcast(x, root, **by), np.arange(20_001) + 1
        )
        total = ranks.reduce(np.arange(9_999) * rank, root=root, **by)
        if rank == root:
            wanted = np.arange(9_999) * sum(range(size))
            np.testing.assert_array_equal(total, wanted)
        lengths = [300 * abs(r - root) for r in range(size)]
        whole = np.concatenate([np.full(n, r) for r, n in enumerate(lengths)])
        blocks = ranks.gather(np.full(lengths[rank], rank), root, **by)
        if rank == root:
            np.testing.assert_array_equal(blocks, whole)
        given = whole if rank == root else None
        block = ranks.scatter(given, root, splits=lengths, **by)
        np.testing.assert_array_equal(block, np.full(lengths[rank], rank))
    lengths = [(7 * r * r * 300 + 1) % 5000 * (r != 1) for r in range(size)]
    whole = np.concatenate([np.full(n, r) for r, n in enumerate(lengths)])
    gathered = ranks.all_gather(np.full(lengths[rank], rank), **by)
    np.testing.assert_array_equal(gathered, whole)
    block = ranks.reduce_scatter(whole + rank, splits=lengths, **by)
    total = rank * size + sum(range(size))
    np.testing.assert_array_equal(block, np.full(lengths[rank], total))


@pytest.mark.parametrize("most", [0, 1, 2_000])
def test_every_rank_has_something_else_for_every_rank(ranks, most):
    size, rank = ranks.size, ranks.rank
    table = np.random.default_rng(most).integers(0, most + 1, (size, size))
    sent = [np.arange(n) + 1000 * rank + to for to, n in enumerate(table[rank])]
    y = ranks.all_to_all(
        np.concatenate(sent), splits=list(table[rank]), algorithm="hierarchical"
    )
    came = [np.arange(n) + 1000 * r + rank for r, n in enumerate(table[:, rank])]
    np.testing.assert_array_equal(y, np.concatenate(came))


def test_registered_arrays_and_calls_in_a_row(ranks):
    x = ranks.full(5_000, 1.0)
    for turn in range(20):
        ranks.all_reduce(x, out=x, algorithm=NAMES[turn % 2])
        assert (x == ranks.size).all()
        x[:] = 1
        assert ranks.all_reduce(turn).item() == turn * ranks.size


def test_a_shared_result_opens_the_windows_it_needs(ranks):
    parts = [numbers(rank, 3000) for rank in range(ranks.size)]
    several = len(ranks.topology.hosts) > 1
    by = {"algorithm": "hierarchical"} if several else {}
    close(ranks.all_reduce(parts[ranks.rank], out=SHARED, **by).array, parts)


@pytest.mark.parametrize("collective", [n for n in TABLE if NAMES[0] in TABLE[n]])
def test_what_the_lanes_cannot_keep_is_refused(ranks, collective):
    call = getattr(ranks.with_options(deterministic=True), collective)
    if TABLE[collective][NAMES[0]].in_order or collective not in REDUCING:
        call(np.ones(ranks.size), algorithm=NAMES[0])
        return
    with pytest.raises(UnsupportedError, match="in the order of ranks"):
        call(np.ones(ranks.size), algorithm=NAMES[0])


@pytest.mark.ranks(2, 3, 4, 5)
def test_without_memory_on_one_host_all_are_told(ranks, monkeypatch):
    if ranks.rank == 1:
        monkeypatch.setattr(ranks._group.arena, "carve", _no_room)
    with pytest.raises(UnsupportedError, match=r"ranks \[1\] had no memory"):
        ranks.all_reduce(np.ones(9), algorithm="hierarchical")
    assert ranks.all_reduce(np.ones(50_000)).sum() == 50_000 * ranks.size


def _no_room(nbytes):
    raise MemoryError
