import numpy as np
import pytest

from collectives.bench.case import IN_PLACE, OUT_OF_PLACE, Block, Size
from collectives.bench.cases import CASES


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("all_reduce", {1: 0, 2: 1, 4: 1.5, 8: 1.75}),
        ("all_reduce_many", {1: 0, 2: 1, 4: 1.5}),
        *(
            (name, {1: 0, 2: 0.5, 4: 0.75})
            for name in (
                *("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"),
            )
        ),
        ("send", {2: 1, 4: 1}),
        ("exchange", {2: 1, 4: 1}),
        ("scan", {1: 1, 4: 1}),
        ("broadcast", {1: 1, 4: 1}),
        ("broadcast_many", {1: 1, 4: 1}),
        ("reduce", {1: 1, 4: 1}),
        ("barrier", {1: 0, 4: 0}),
    ],
)
def test_bus_bandwidth_factors_are_those_of_nccl_tests(name, factors):
    assert {ranks: CASES[name].factor(ranks) for ranks in factors} == factors


def test_sizes_are_whole_elements():
    assert CASES["all_reduce"].size(1023, 4, 3) == Size(1020, 255)
    assert CASES["broadcast"].size(3, 4, 3) == Size(0, 0)


@pytest.mark.parametrize(
    "name", ["all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"]
)
def test_the_size_is_that_of_the_whole_and_parts_are_multiples_of_16_bytes(name):
    case = CASES[name]
    assert case.size(1024, 4, 2) == Size(1024, 128)
    assert case.size(1000, 8, 3) == Size(960, 40)
    assert case.size(8, 4, 2) == Size(0, 0)


def test_a_barrier_has_no_size():
    assert CASES["barrier"].size(1 << 20, 4, 2) == Size(0, 0)


def buffers(count):
    return np.arange(count, dtype=np.float32), np.zeros(count, np.float32)


def test_in_place_sends_from_where_it_receives():
    first, second = buffers(64)
    send, receive = CASES["all_reduce"].views(
        (first, second), Size(128, 32), IN_PLACE, 1
    )
    assert send.size == receive.size == 32
    assert send is receive
    _, receive = CASES["all_reduce"].views(
        (first, second), Size(128, 32), OUT_OF_PLACE, 1
    )
    assert np.shares_memory(receive, second)


def test_all_gather_in_place_sends_this_ranks_part_of_the_whole():
    first, second = buffers(64)
    case, size = CASES["all_gather"], Size(96, 8)
    send, receive = case.views((first, second), size, IN_PLACE, 2)
    assert receive.size == 24
    assert send.tolist() == first[16:24].tolist()
    assert np.shares_memory(send, receive)
    send, receive = case.views((first, second), size, OUT_OF_PLACE, 2)
    assert send.tolist() == first[:8].tolist()
    assert not np.shares_memory(send, receive)


@pytest.mark.parametrize(("name", "start"), [("scatter", 16), ("reduce_scatter", 0)])
def test_a_part_is_received_in_place_where_mpi_leaves_it(name, start):
    first, second = buffers(64)
    case, size = CASES[name], Size(96, 8)
    send, receive = case.views((first, second), size, IN_PLACE, 2)
    assert send.size == 24
    assert receive.tolist() == first[start : start + 8].tolist()
    assert np.shares_memory(send, receive)
    send, receive = case.views((first, second), size, OUT_OF_PLACE, 2)
    assert (send.size, receive.size) == (24, 8)
    assert not np.shares_memory(send, receive)


def test_all_to_all_sends_and_receives_the_whole():
    first, second = buffers(64)
    case, size = CASES["all_to_all"], Size(96, 8)
    send, receive = case.views((first, second), size, OUT_OF_PLACE, 2)
    assert (send.size, receive.size) == (24, 24)
    send, receive = case.views((first, second), size, IN_PLACE, 2)
    assert send is receive


EVERYBODY = (0, 1, 2)


@pytest.mark.parametrize(
    ("name", "rank", "root", "blocks"),
    [
        ("all_reduce", 2, 0, [Block(EVERYBODY)]),
        ("all_reduce_many", 2, 0, [Block(EVERYBODY)]),
        ("reduce", 1, 1, [Block(EVERYBODY)]),
        ("reduce", 2, 1, []),
        ("reduce_scatter", 2, 0, [Block(EVERYBODY, 2)]),
        ("scan", 0, 0, [Block((0,))]),
        ("scan", 2, 0, [Block(EVERYBODY)]),
        ("exclusive_scan", 0, 0, [Block(())]),
        ("exclusive_scan", 2, 0, [Block((0, 1))]),
        ("broadcast", 2, 1, [Block((1,))]),
        ("all_gather", 2, 0, [Block((0,)), Block((1,)), Block((2,))]),
        ("gather", 1, 1, [Block((0,)), Block((1,)), Block((2,))]),
        ("gather", 2, 1, []),
        ("scatter", 2, 1, [Block((1,), 2)]),
        ("all_to_all", 1, 0, [Block((0,), 1), Block((1,), 1), Block((2,), 1)]),
        ("send", 0, 0, [Block((1,))]),
        ("send", 1, 0, [Block((0,))]),
        ("send", 2, 0, []),
        ("exchange", 0, 0, [Block((2,))]),
        ("exchange", 2, 0, [Block((1,))]),
        ("barrier", 2, 1, []),
    ],
)
def test_blocks_of_results_name_their_sources(name, rank, root, blocks):
    assert CASES[name].blocks(3, rank, root) == blocks
