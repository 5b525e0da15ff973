"""Asking who is still there: what fits into an answer, and whom an answer is for."""

import threading

import pytest

from collectives.rollcall import ANSWER_BYTES, Presence, RollCall
from collectives.transport.loopback import run_threads


@pytest.mark.parametrize("count", [0, 1, 5, 1000])
def test_an_answer_has_as_many_sightings_as_fit(count):
    seen = {rank: f"has been in user code for {rank}.0 s" for rank in range(count)}
    presence = Presence(7, "all_reduce #7", seen)
    message = presence.pack()
    assert message.size == ANSWER_BYTES
    told = Presence.unpack(message)
    assert len(told.sightings) >= min(count, 5)
    assert (told.sequence, told.doing) == (7, "all_reduce #7")
    assert list(told.sightings.items()) == list(seen.items())[: len(told.sightings)]


def test_who_is_in_another_call_answers_and_does_not_give_up():
    over = threading.Event()

    def body(messages):
        call = RollCall(messages)
        here = Presence(4 if messages.rank == 2 else 5, f"rank {messages.rank}")
        if messages.rank == 0:
            answers = call.ask([1, 2], here, 0.5)
            over.set()
            return answers
        gave_up = -1
        while not over.wait(0.01):
            gave_up = call.look(lambda: here)
        return gave_up

    answers, same, other = run_threads(3, body)
    assert {rank: answers[rank].doing for rank in answers} == {1: "rank 1", 2: "rank 2"}
    assert (same, other) == (0, -1)
