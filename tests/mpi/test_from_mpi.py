"""Communicators of programs that already have MPI ones."""

import numpy as np
import pytest

import collectives
from collectives import InvalidArgumentError, Options


@pytest.fixture(scope="module")
def mpi(comm):
    from mpi4py import MPI

    return MPI


def test_the_world_knows_its_mpi(comm, mpi):
    assert comm.mpi == mpi.COMM_WORLD
    assert (comm.rank, comm.size) == (mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size)
    facts = comm.topology.mpi
    assert facts.vendor in ("MPICH", "Open MPI", "Intel MPI")
    assert facts.library in mpi.Get_library_version()
    assert facts.version == ".".join(map(str, mpi.get_vendor()[1]))
    assert facts.thread_level == "multiple"


@pytest.mark.one_host
def test_all_ranks_are_on_this_host(comm):
    assert comm.topology.host_of == (0,) * comm.size
    assert len(comm.topology.hosts) == 1
    assert (comm.topology.local_rank, comm.topology.local_size) == (
        comm.rank,
        comm.size,
    )


@pytest.mark.one_host
def test_a_split_communicator(comm, mpi):
    """Even and odd ranks apart, numbered from the end."""
    part = mpi.COMM_WORLD.Split(comm.rank % 2, key=-comm.rank)
    members = sorted(range(comm.rank % 2, comm.size, 2), reverse=True)
    with collectives.from_mpi(part) as ours:
        assert ours.mpi is part
        assert ours.size == len(members)
        assert members[ours.rank] == comm.rank
        for algorithm in collectives.ALGORITHMS["all_reduce"]:
            y = ours.all_reduce(np.array([comm.rank]), algorithm=algorithm)
            assert y.tolist() == [sum(members)]
        assert ours.all_gather(np.array([comm.rank])).tolist() == members
        assert ours.broadcast(np.array([comm.rank]), root=0).tolist() == members[:1]
    part.Free()
    comm.barrier()


def test_only_some_ranks_make_one(comm, mpi):
    """A group without the last rank; that one goes on in the meantime."""
    color = 0 if comm.rank < max(1, comm.size - 1) else mpi.UNDEFINED
    part = mpi.COMM_WORLD.Split(color)
    if part != mpi.COMM_NULL:
        with collectives.from_mpi(part) as ours:
            assert ours.all_reduce(1.0) == max(1, comm.size - 1)
        part.Free()
    assert comm.all_reduce(1.0) == comm.size


def test_a_communicator_of_one(comm, mpi):
    with collectives.from_mpi(mpi.COMM_SELF) as alone:
        assert (alone.rank, alone.size) == (0, 1)
        x = np.arange(4)
        y = alone.all_reduce(x, "mean")
        assert y.tolist() == [0, 1, 2, 3]
        assert y.dtype == np.float64
        for algorithm in collectives.ALGORITHMS["all_gather"]:
            assert alone.all_gather(x, algorithm=algorithm).tolist() == [0, 1, 2, 3]


def test_communicators_do_not_hear_each_other(comm, mpi):
    """Interleaved calls, with messages of the caller's own in between."""
    with (
        collectives.from_mpi(mpi.COMM_WORLD) as one,
        collectives.from_mpi(mpi.COMM_WORLD) as two,
    ):
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        requests = [mpi.COMM_WORLD.isend(f"note {tag}", right, tag) for tag in range(5)]
        for turn in range(5):
            x = np.full(3000, turn + comm.rank)
            for ours in (two, one, comm):
                y = ours.all_reduce(x, algorithm="ring")
                assert set(y.tolist()) == {turn * comm.size + sum(range(comm.size))}
        notes = [mpi.COMM_WORLD.recv(source=left, tag=tag) for tag in range(5)]
        mpi.Request.waitall(requests)
        assert notes == [f"note {tag}" for tag in range(5)]


def test_the_callers_communicator_is_left_as_it_was(comm, mpi):
    mine = mpi.COMM_WORLD.Dup()
    collectives.from_mpi(mine).close()
    assert mine.allreduce(1) == comm.size
    mine.Free()


def test_many_can_be_made_one_after_the_other(comm, mpi):
    for _ in range(10):
        with collectives.from_mpi(mpi.COMM_WORLD) as ours:
            assert ours.all_reduce(1.0) == comm.size


def test_a_closed_one_says_so(comm, mpi):
    ours = collectives.from_mpi(mpi.COMM_WORLD)
    ours.close()
    ours.close()
    with pytest.raises(collectives.BrokenCommunicatorError, match="it was closed"):
        ours.barrier()


def test_options_are_those_given_and_the_same_everywhere(comm, mpi):
    options = Options(timeout_s=17, algorithm="ring")
    with collectives.from_mpi(mpi.COMM_WORLD, options) as ours:
        assert ours.options == options
        assert ours.choose("all_reduce", 8, np.float32).algorithm == "ring"


@pytest.mark.ranks(2, 3, 4, 5)
def test_options_that_differ_are_an_error_everywhere(comm, mpi):
    options = Options(segment_bytes=1024 if comm.rank == 1 else 2048, abort=False)
    with pytest.raises(collectives.MismatchError) as caught:
        collectives.from_mpi(mpi.COMM_WORLD, options)
    text = str(caught.value)
    assert text.startswith("the ranks run with different segment_bytes: 2048 on ranks")
    assert text.endswith("1024 on ranks [1]")
    comm.barrier()


@pytest.mark.ranks(2, 3)
def test_an_intercommunicator_is_refused(comm, mpi):
    part = mpi.COMM_WORLD.Split(min(comm.rank, 1))
    across = part.Create_intercomm(0, mpi.COMM_WORLD, 1 if comm.rank == 0 else 0)
    with pytest.raises(InvalidArgumentError, match="wanted an intracommunicator"):
        collectives.from_mpi(across)
    across.Free()
    part.Free()
    comm.barrier()
