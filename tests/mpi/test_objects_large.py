"""Objects with large arrays in them, over MPI, from any thread."""

import threading

import numpy as np
import pytest

from collectives import CollectiveError, MismatchError

ELEMENTS = 400_000  # of float64: several segments


def sample(rank):
    """Return an object with large arrays; how many and how long, the rank decides."""
    arrays = {f"a{n}": np.full((3, ELEMENTS + rank), rank + n) for n in range(rank % 3)}
    return {
        "rank": rank,
        **arrays,
        "view": np.arange(2.0 * ELEMENTS)[::-2] * (rank + 1),
    }


def problems(value, rank):
    """Return what is wrong with an object that should be that rank's sample."""
    wanted, told = sample(rank), []
    if value.keys() != wanted.keys() or value["rank"] != rank:
        return [f"got {value.keys()} of rank {value['rank']}"]
    for name, want in wanted.items():
        if name != "rank" and not (value[name] == want).all():
            told.append(f"{name} of rank {rank} differs")
        if name != "rank" and not value[name].flags.writeable:
            told.append(f"{name} of rank {rank} is read-only")
    return told


def check_all(comm):
    told = []
    for rank, value in enumerate(comm.all_gather_object(sample(comm.rank))):
        told += problems(value, rank)
    for root in range(comm.size):
        told += problems(comm.broadcast_object(sample(comm.rank), root), root)
        for rank, value in enumerate(comm.gather_object(sample(comm.rank), root) or []):
            told += problems(value, rank)
    return told


def test_large_arrays_inside(comm):
    assert check_all(comm) == []


def test_from_a_worker_thread(comm):
    """Nothing is made at the first use, so that any thread may be the first."""
    told = ["the thread did not end"]

    def work():
        told[:] = check_all(comm)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert told == []


def test_started(comm):
    handle = comm.start_all_gather_object(sample(comm.rank))
    told = [problems(value, rank) for rank, value in enumerate(handle.wait(60))]
    assert not any(told)


def test_in_a_group(comm):
    half = comm.split(comm.rank % 2)
    members = range(comm.rank % 2, comm.size, 2)
    everyone = half.all_gather_object(sample(comm.rank))
    told = [problems(v, rank) for v, rank in zip(everyone, members, strict=True)]
    half.close()
    assert not any(told)


@pytest.mark.parametrize(
    "name", ["broadcast_object", "all_gather_object", "gather_object"]
)
def test_too_large_is_the_same_error_everywhere(comm, name):
    last = comm.size - 1
    limited = comm.with_options(object_limit_bytes=1_000_000)
    value = np.zeros(1_000_001 if comm.rank == last else 1, np.uint8)
    arguments = (value,) if name == "all_gather_object" else (value, last)
    with pytest.raises(CollectiveError, match="more than 1000000 bytes") as caught:
        getattr(limited, name)(*arguments)
    assert isinstance(caught.value, MismatchError) == (comm.size > 1)
    texts = comm.all_gather_object(str(caught.value))
    assert len(set(texts)) == 1


@pytest.mark.full
@pytest.mark.ranks(2)
def test_more_than_2_to_the_31_bytes(comm):
    large = comm.with_options(object_limit_bytes=1 << 32)
    length = (1 << 31) + 5
    mine = np.zeros(length, np.uint8) if comm.rank == 0 else None
    if mine is not None:
        mine[-1] = 7
    got = large.broadcast_object(mine)
    assert (got.size, got[-1], got[:-1].any()) == (length, 7, False)
