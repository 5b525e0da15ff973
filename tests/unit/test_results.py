"""Right results on ranks that are threads, however they agree on their calls."""

from random import Random

import numpy as np
import pytest
from harness.cases import CELLS, cases, run, segmented
from harness.rendezvous import rendezvous
from harness.threads import WORLDS, run_ranks

import collectives
from collectives import Options
from collectives.moves import TWO_LEVELS

COLLECTIVES = tuple(collectives.ALGORITHMS)
MANY = 30
CANNOT = {
    "one board": {"native"},
    # There ranks are on one host and the other by turns.
    "two hosts": {"native", "shared", "direct", "hierarchical_chain"},
    "no board": {"native", "shared", "direct", *TWO_LEVELS},
}


def some_cases(collective, size, world, seed=""):
    """Draw some of a collective's cases that can run there, always the same."""
    alone = CANNOT[world]
    every = [
        case
        for cell in CELLS
        if cell[0] == collective and cell[1] not in alone
        for case in cases(*cell, full=False, size=size)
    ]
    return Random(f"{world} {size} {seed}").sample(every, MANY)


def check(comm, chosen):
    told = [run(segmented(comm, case.dtype), case) for case in chosen]
    everyone = comm.all_gather_object([digest for _, digest in told])
    complaints = [
        f"{case}: {text}" for case, (text, _) in zip(chosen, told, strict=True) if text
    ]
    for case, *theirs in zip(chosen, *everyone, strict=True):
        if len({digest for digest in theirs if digest}) > 1:
            complaints.append(f"{case}: the ranks have different bits")
    return complaints


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_results(world, size, collective):
    chosen = some_cases(collective, size, world)
    assert run_ranks(size, lambda comm: check(comm, chosen), world) == [[]] * size


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_results_where_messages_read_the_senders_memory_late(size, collective):
    """Nothing that is being sent may be overwritten before it has been taken."""
    chosen = [
        case
        for case in some_cases(collective, size, "no board", "late")
        if case.shape in ("many segments", "one segment")
    ]
    assert len(chosen) > 3
    told = run_ranks(size, lambda comm: check(comm, chosen), transport=rendezvous())
    assert told == [[]] * size


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("bytes_per_pack", [0, 1, 1 << 40])
def test_all_reduce_many_in_packs_of_any_size(size, bytes_per_pack):
    shapes = [(), (3,), (0,), (40, 5), (1, 1), (7,)]
    dtypes = ["float32", "int16", "float32", "float16", "float64", "float32"]

    def body(comm):
        arrays = [
            np.full(shape, comm.rank + place).astype(dtype)
            for place, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        ]
        results = comm.all_reduce_many(arrays, bytes_per_pack=bytes_per_pack)
        wanted = [
            np.full(shape, size * (size - 1) // 2 + size * place).astype(dtype)
            for place, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        ]
        for got, want in zip(results, wanted, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            assert (got == want).all()
        return len(results)

    assert run_ranks(size, body) == [len(shapes)] * size


@pytest.mark.parametrize("world", WORLDS)
def test_objects(world):
    def body(comm):
        everyone = comm.all_gather_object({"rank": comm.rank, "text": "x" * comm.rank})
        roots = [comm.broadcast_object(comm.rank, root) for root in range(comm.size)]
        comm.barrier()
        return everyone, roots

    wanted = [{"rank": rank, "text": "x" * rank} for rank in range(4)]
    assert run_ranks(4, body, world) == [(wanted, [0, 1, 2, 3])] * 4


@pytest.mark.parametrize("world", WORLDS)
def test_several_hundred_calls_in_a_row(world):
    """Sequence numbers and tags go round; no call takes another one's messages."""

    def body(comm):
        total = 0
        for turn in range(300):
            x = np.array([turn + comm.rank])
            total += int(comm.all_reduce(x, algorithm="recursive_doubling")[0])
            comm.broadcast(x, root=turn % comm.size, out=x)
            total += int(x[0])
        return total

    one, two, three = run_ranks(3, body, world)
    assert one == two == three


def test_every_option_set_shares_the_ranks_and_their_order():
    def body(comm):
        quick = comm.with_options(timeout_s=5, algorithm="ring")
        slow = comm.with_options(segment_bytes=64)
        assert (quick.options.timeout_s, quick.options.algorithm) == (5, "ring")
        assert quick.options.segment_bytes == comm.options.segment_bytes
        sums = [
            int(one.all_reduce(np.array([comm.rank]))[0]) for one in (quick, comm, slow)
        ]
        return sums, quick.rank, quick.size, quick.topology == comm.topology

    assert run_ranks(3, body) == [([3, 3, 3], rank, 3, True) for rank in range(3)]


def test_facts_of_a_communicator():
    def body(comm):
        assert comm.mpi is None
        assert isinstance(comm.options, Options)
        return repr(comm)

    assert run_ranks(2, body, "two hosts") == [
        f"<Communicator rank {rank} of 2 on 2 host(s)>" for rank in range(2)
    ]


def test_native_needs_an_mpi():
    def body(comm):
        with pytest.raises(collectives.UnsupportedError, match="runs without MPI"):
            comm.all_reduce(1.0, algorithm="native")
        return comm.all_reduce(1.0).item()

    assert run_ranks(2, body) == [2.0, 2.0]
