"""What a communicator promises beside the results of single calls."""

import numpy as np
import pytest

import collectives


def test_module_level_functions_use_the_world(comm):
    assert collectives.world() is comm
    x = np.array([1.0, comm.rank])
    ranks = sum(range(comm.size))
    assert collectives.all_reduce(x).tolist() == [comm.size, ranks]
    (y,) = collectives.all_reduce_many([x])
    assert y.tolist() == [comm.size, ranks]
    total = collectives.reduce(x, root=0)
    assert (total is None) == (comm.rank != 0)
    assert collectives.broadcast(x, root=0).tolist() == [1, 0]
    assert collectives.all_gather(x).size == 2 * comm.size
    assert collectives.all_gather_object(1) == [1] * comm.size
    assert collectives.broadcast_object(comm.rank) == 0
    collectives.barrier()
    choice = collectives.choose("all_reduce", 8, np.float32)
    assert choice.algorithm in collectives.ALGORITHMS["all_reduce"]


def test_other_options_are_another_communicator_of_the_same_ranks(comm):
    quick = comm.with_options(timeout_s=5, algorithm="ring")
    assert (quick.rank, quick.size, quick.mpi) == (comm.rank, comm.size, comm.mpi)
    assert quick.options.timeout_s == 5
    assert comm.options.timeout_s != 5
    assert quick.choose("all_reduce", 8, np.float32).algorithm == "ring"
    for _ in range(3):
        assert quick.all_reduce(1.0) == comm.all_reduce(1.0) == comm.size


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"segment_bytes": 1}])
def test_impossible_options_are_refused(comm, options):
    with pytest.raises(collectives.InvalidArgumentError, match="wanted"):
        comm.with_options(**options)


def test_numbers_and_lists_are_arrays(comm):
    assert comm.all_reduce(2).item() == 2 * comm.size
    assert comm.all_reduce([1, 2]).tolist() == [comm.size, 2 * comm.size]
    assert comm.all_reduce(True, "and").item() is True
    assert comm.broadcast(comm.rank, root=0).item() == 0
    assert comm.all_gather(comm.rank).tolist() == list(range(comm.size))
    total = comm.reduce(1, root=comm.size - 1)
    assert total is None if comm.rank != comm.size - 1 else total.item() == comm.size


def test_buffers_are_arrays(comm):
    memory = bytearray(b"abc" if comm.rank == 0 else b"xyz")
    assert comm.broadcast(memory, out=memory) is memory
    assert memory == b"abc"


@pytest.mark.parametrize("algorithm", collectives.ALGORITHMS["all_reduce"])
def test_in_place_through_two_views_of_the_same_memory(comm, algorithm):
    memory = np.arange(3000.0)
    comm.all_reduce(memory[:], out=memoryview(memory), algorithm=algorithm)
    assert (memory == comm.size * np.arange(3000.0)).all()


@pytest.mark.parametrize("algorithm", collectives.ALGORITHMS["all_reduce"])
@pytest.mark.parametrize("shift", [-3, 1, 40])
def test_input_and_out_may_overlap(comm, algorithm, shift):
    """As if the input had been read before the result was written."""
    memory = np.arange(3000.0)
    start = max(0, -shift)
    x = memory[start : start + 2000]
    out = memory[start + shift : start + shift + 2000]
    wanted = x * comm.size
    comm.all_reduce(x, out=out, algorithm=algorithm)
    assert (out == wanted).all()


@pytest.mark.parametrize("algorithm", collectives.ALGORITHMS["all_reduce"])
def test_out_may_be_the_input_in_another_layout(comm, algorithm):
    memory = np.arange(35.0).reshape(5, 7)
    wanted = memory[::-1].copy() * comm.size
    comm.all_reduce(memory[::-1], out=memory, algorithm=algorithm)
    assert (memory == wanted).all()
    square = np.arange(36.0).reshape(6, 6)
    wanted = square.T * comm.size
    comm.all_reduce(square.T, out=square, algorithm=algorithm)
    assert (square == wanted).all()


@pytest.mark.parametrize("algorithm", collectives.ALGORITHMS["all_gather"])
def test_a_part_may_lie_where_it_will_be_gathered(comm, algorithm):
    """In place, as MPI calls it."""
    whole = np.full((comm.size, 4), -1.0)
    whole[comm.rank] = comm.rank
    y = comm.all_gather(
        whole[comm.rank : comm.rank + 1], out=whole, algorithm=algorithm
    )
    assert y is whole
    assert (whole == np.arange(comm.size)[:, None]).all()


def test_a_root_other_than_this_rank_ignores_out(comm):
    root = comm.size - 1
    out = np.full(3, -1.0) if comm.rank == root else "not looked at"
    got = comm.reduce(np.ones(3), root=root, out=out)
    if comm.rank == root:
        assert got is out
        assert out.tolist() == [comm.size] * 3
    else:
        assert got is None


@pytest.mark.one_host
def test_a_result_may_be_overwritten_at_once(comm):
    """Nobody reads another rank's memory after the call has returned."""
    for algorithm in collectives.ALGORITHMS["all_reduce"]:
        x = np.arange(20_000.0)
        for turn in range(10):
            x[:] = turn
            comm.all_reduce(x, out=x, algorithm=algorithm)
            assert set(x.tolist()) == {turn * comm.size}
            x[:] = np.nan


@pytest.mark.parametrize("algorithm", collectives.ALGORITHMS["all_reduce"])
def test_several_mebibytes(comm, algorithm):
    """Many segments of the usual size, and a last one that is shorter."""
    x = np.arange(1_500_001, dtype=np.float32) % 1000 + comm.rank
    y = comm.all_reduce(x, algorithm=algorithm)
    wanted = np.arange(1_500_001, dtype=np.float32) % 1000 * comm.size
    assert (y == wanted + sum(range(comm.size))).all()


def test_many_calls_in_a_row(comm):
    """Nothing is left over from call to call."""
    for turn in range(60):
        root = turn % comm.size
        assert comm.all_reduce(1.0, algorithm="ring").item() == comm.size
        assert comm.broadcast(comm.rank, root).item() == root
        assert comm.all_gather(turn).tolist() == [turn] * comm.size
        comm.reduce(1.0, root=root, algorithm="tree")


@pytest.mark.one_host
def test_shared_memory_is_accounted_for(comm):
    kept = comm.empty(1, np.uint8)  # now what was freed before has gone back
    before = comm.shared_bytes
    x = comm.empty(1 << 20, np.uint8)
    shared = comm.topology.local_size > 0 and comm._group.arena is not None
    assert comm.shared_bytes - before >= (x.nbytes if shared else 0)
    assert kept.size == 1
