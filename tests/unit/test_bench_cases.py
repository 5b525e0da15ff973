import numpy as np
import pytest

from collectives.bench.cases import CASES, IN_PLACE, OUT_OF_PLACE, Size


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("all_reduce", {1: 0, 2: 1, 4: 1.5, 8: 1.75}),
        ("all_gather", {1: 0, 2: 0.5, 4: 0.75}),
        ("broadcast", {1: 1, 4: 1}),
        ("reduce", {1: 1, 4: 1}),
        ("barrier", {1: 0, 4: 0}),
    ],
)
def test_bus_bandwidth_factors_are_those_of_nccl_tests(name, factors):
    assert {ranks: CASES[name].factor(ranks) for ranks in factors} == factors


def test_sizes_are_whole_elements():
    assert CASES["all_reduce"].size(1023, 4, 3) == Size(1020, 255)
    assert CASES["broadcast"].size(3, 4, 3) == Size(0, 0)


def test_size_of_all_gather_is_the_whole_and_its_parts_are_multiples_of_16_bytes():
    case = CASES["all_gather"]
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


def test_blocks_of_results_name_their_sources():
    assert CASES["all_reduce"].blocks(3, 2, 0) == [(0, 1, 2)]
    assert CASES["all_gather"].blocks(3, 2, 0) == [(0,), (1,), (2,)]
    assert CASES["broadcast"].blocks(3, 2, 1) == [(1,)]
    assert CASES["reduce"].blocks(3, 1, 1) == [(0, 1, 2)]
    assert CASES["reduce"].blocks(3, 2, 1) == []
    assert CASES["barrier"].blocks(3, 2, 1) == []
