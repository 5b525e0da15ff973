"""Lines on which the ranks of a host tell each other what they do."""

import time

import pytest

from collectives.board import CALLS, LINE_BYTES, Board, State, board_bytes

BARRIER, REDUCE = CALLS.index("barrier"), CALLS.index("reduce")


def boards(members):
    memory = bytearray(board_bytes(len(members)))
    return [Board(memoryview(memory), members, rank) for rank in members]


def test_a_line_is_two_pairs_of_cache_lines():
    assert LINE_BYTES == 256
    assert board_bytes(5) == 5 * LINE_BYTES


def test_all_have_arrived_with_the_same_call():
    one, two, three = boards([0, 1, 2])
    one.post(1, BARRIER, 77)
    assert not one.same(1, 77)
    assert not one.all_here(1)
    assert one.late(1) == [1, 2]
    two.post(1, BARRIER, 77)
    assert not one.all_here(1)
    assert one.late(1) == [2]
    three.post(1, BARRIER, 77)
    assert one.all_here(1)
    assert one.same(1, 77)
    assert one.late(1) == []


def test_all_have_arrived_with_different_calls():
    one, two, three = boards([0, 1, 2])
    for board, word in ((one, 77), (two, 77), (three, 78)):
        board.post(1, BARRIER, word)
    assert all(board.all_here(1) for board in (one, two, three))
    assert not any(
        board.same(1, word) for board, word in ((one, 77), (two, 77), (three, 78))
    )


def test_a_slow_rank_still_reads_a_call_while_others_post_the_next():
    one, two = boards([0, 1])
    for sequence in range(1, 6):
        one.post(sequence, BARRIER, 100 + sequence)
        two.post(sequence, BARRIER, 100 + sequence)
        two.post(sequence + 1, REDUCE, 100 + sequence + 1)  # `one` has not looked yet
        assert one.same(sequence, 100 + sequence)
        assert one.all_here(sequence)
        assert not two.same(sequence + 1, 100 + sequence + 1)
        assert two.late(sequence + 1) == [0]


def test_a_word_of_an_earlier_call_is_not_taken_for_this_one():
    one, two = boards([0, 1])
    for sequence in (1, 2):
        one.post(sequence, BARRIER, 5 + sequence)
        two.post(sequence, BARRIER, 5 + sequence)
    one.post(3, BARRIER, 8)
    assert not one.same(3, 8)
    assert not one.all_here(3)


def test_members_are_called_by_their_rank_in_the_group():
    memory = memoryview(bytearray(board_bytes(2)))
    three, eight = Board(memory, [3, 8], 3), Board(memory, [3, 8], 8)
    eight.post(4, REDUCE, 1)
    assert three.late(5) == [8]
    assert three.seen(8).call == "reduce"
    assert three.seen(3).state is State.USER


def test_a_member_that_has_not_come_yet_is_absent():
    memory = memoryview(bytearray(board_bytes(2)))
    one = Board(memory, [0, 1], 0)
    assert one.seen(1).state is State.ABSENT
    assert str(one.seen(1)) == "has not started"


def test_what_a_rank_was_last_seen_doing(monkeypatch):
    clock = [1_000_000_000]
    monkeypatch.setattr(time, "monotonic_ns", lambda: clock[0])
    one, two = boards([0, 1])
    clock[0] += 2_500_000_000
    assert str(one.seen(1)) == "has been in user code for 2.5 s"
    two.post(7, REDUCE, 1)
    clock[0] += 4_000_000_000
    assert str(one.seen(1)) == "has been in reduce #7 for 4.0 s"
    two.back_to_user()
    assert str(one.seen(1)).startswith("has been in user code for ")
    assert str(one.seen(1)).endswith(", after reduce #7")
    two.set_state(State.LEFT)
    clock[0] += 1_500_000_000
    assert str(one.seen(1)) == "left the job 1.5 s ago, after reduce #7"


@pytest.mark.parametrize("word", [0, 1, (1 << 63) - 1])
def test_any_word_can_be_posted(word):
    one, two = boards([0, 1])
    one.post(1, BARRIER, word)
    two.post(1, BARRIER, word)
    assert one.same(1, word)


def test_a_closed_board_lets_go_of_its_memory():
    memory = bytearray(board_bytes(1))
    board = Board(memoryview(memory), [0], 0)
    board.close()
    memory.extend(b"x")  # would be a BufferError while a view is alive
