"""Where ranks are, as each of them sees it."""

import os

import pytest

from collectives.topology import (
    Topology,
    devices,
    last_caches,
    numa_nodes,
    single_host,
    usable_cores,
)


@pytest.mark.parametrize(
    ("rank", "local_ranks", "local_rank"),
    [(0, (0, 2), 0), (1, (1, 3, 4), 0), (2, (0, 2), 1), (4, (1, 3, 4), 2)],
)
def test_local_ranks_are_those_of_the_same_host(rank, local_ranks, local_rank):
    topology = Topology(rank, ("a", "b"), (0, 1, 0, 1, 1), cores=2)
    assert topology.local_ranks == local_ranks
    assert topology.local_rank == local_rank
    assert topology.local_size == len(local_ranks)


def test_two_hosts_may_have_the_same_name():
    topology = Topology(1, ("node", "node"), (0, 1), cores=2)
    assert topology.local_ranks == (1,)


def test_a_single_host():
    topology = single_host(2, 4)
    assert topology.hosts == (os.uname().nodename,)
    assert topology.host_of == (0, 0, 0, 0)
    assert (topology.rank, topology.local_rank, topology.local_size) == (2, 2, 4)
    assert topology.cores == len(usable_cores())
    assert topology.mpi is None


def test_usable_cores_follow_the_affinity():
    before = os.sched_getaffinity(0)
    one = {min(before)}
    os.sched_setaffinity(0, one)
    try:
        assert usable_cores() == one
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cores() == before


@pytest.mark.parametrize(
    ("host_of", "text"),
    [
        ((0,), "1 host x 1 rank"),
        ((0, 0), "1 host x 2 ranks"),
        ((0, 0, 1, 1), "2 hosts x 2 ranks"),
        ((0, 1, 0, 1), "2 hosts x 2 ranks, not in order"),
        ((0, 0, 1, 2, 2), "3 hosts, 2+1+2 ranks"),
    ],
)
def test_the_shape_tells_how_many_are_where(host_of, text):
    topology = Topology(0, ("a", "b", "c")[: max(host_of) + 1], host_of, cores=2)
    assert topology.shape == text
    assert topology.most_per_host == max(host_of.count(h) for h in set(host_of))


@pytest.fixture
def system(tmp_path):
    """Return a system of 8 cores: two NUMA nodes, each with two caches of two cores."""
    for node, cores in enumerate(("0-3", "4-7")):
        place = tmp_path / f"node/node{node}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(f"{cores}\n")
    for core in range(8):
        for index, shared in enumerate((f"{core}", f"{core & ~1},{core | 1}")):
            place = tmp_path / f"cpu/cpu{core}/cache/index{index}"
            place.mkdir(parents=True)
            (place / "shared_cpu_list").write_text(f"{shared}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("cores", "nodes", "caches"),
    [
        (range(8), (0, 1), ((0, 1), (2, 3), (4, 5), (6, 7))),
        ([1, 2], (0,), ((1,), (2,))),
        ([4, 5], (1,), ((4, 5),)),
    ],
)
def test_nodes_and_caches_are_those_of_the_cores_that_may_be_used(
    system, cores, nodes, caches
):
    assert numa_nodes(cores, system) == nodes
    assert last_caches(cores, system) == caches


def test_a_system_that_says_nothing_leaves_it_unknown(tmp_path):
    assert numa_nodes(range(2), tmp_path) == last_caches(range(2), tmp_path) == ()
    assert devices(tmp_path, tmp_path) == ()
    assert Topology(0, ("a",), (0,), cores=1).parts == ""


def test_devices_whose_list_is_hidden_are_told_by_their_files(tmp_path):
    for name in ("nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    wanted = tuple(str(tmp_path / name) for name in ("nvidia0", "nvidia1"))
    assert devices(tmp_path / "none", tmp_path) == wanted


def test_devices_are_told_by_uuid(tmp_path):
    for number in range(2):
        place = tmp_path / f"0000:0{number}:00.0"
        place.mkdir()
        text = f"Model: \t NVIDIA H200\nGPU UUID: \t GPU-1234-{number}\nIRQ: 5\n"
        (place / "information").write_text(text)
    (tmp_path / "0000:09:00.0").mkdir()
    assert devices(tmp_path) == ("GPU-1234-0", "GPU-1234-1")
    topology = Topology(0, ("a",), (0,), 2, None, devices(tmp_path), (0, 1), ((0, 1),))
    assert topology.parts == (
        "NUMA nodes 0 1, 1 last-level cache, GPU GPU-1234-0, GPU GPU-1234-1"
    )
