"""The simulator finds what can be wrong with a schedule."""

import pytest
from harness.lockstep import everything, leaves, own_block, simulate

from collectives.schedules import NOTHING, Step

TOP, BOTH = (0, 1), (0, 2)


def send(peer, run):
    return Step(peer, run, -1, NOTHING, reduce=False)


def receive(peer, run, **how):
    return Step(-1, NOTHING, peer, run, **{"reduce": False, **how})


def swap(peer, run, **how):
    return Step(peer, run, peer, run, **{"reduce": True, **how})


def start(ranks):
    return [everything(rank, ranks, -1) for rank in range(ranks)]


def test_terms_tell_order_and_brackets():
    trace = simulate(
        [
            [swap(1, BOTH, lower_first=False, final=True)],
            [swap(0, BOTH, lower_first=True, final=True)],
        ],
        start(2),
    )
    assert [value.term for value in trace.blocks[0]] == [(0, 1), (0, 1)]
    assert trace.blocks[0] == trace.blocks[1]
    assert (trace.rounds, trace.sent, trace.reduced) == (1, [2, 2], [2, 2])
    assert leaves(((2, 0), (1, 3))) == [2, 0, 1, 3]


def test_a_chain_takes_one_round_a_link():
    chain = [
        [send(1, BOTH)],
        [receive(0, BOTH, reduce=True), send(2, BOTH)],
        [receive(1, BOTH, reduce=True, final=True)],
    ]
    trace = simulate(chain, [[everything(r, 3, -1)[0]] * 2 for r in range(3)])
    assert trace.rounds == 2
    assert trace.blocks[2][0].term == ((0, 1), 2)


@pytest.mark.parametrize(
    ("message", "schedules"),
    [
        ("deadlock", [[send(1, BOTH)], []]),
        ("deadlock", [[send(1, BOTH)], [send(0, BOTH)]]),
        ("receives", [[send(1, BOTH)], [receive(0, TOP, reduce=True, final=True)]]),
        ("half a step", [[send(1, NOTHING)], [receive(0, BOTH)]]),
        ("itself", [[swap(0, BOTH)], []]),
        ("copied before complete", [[send(1, BOTH)], [receive(0, BOTH)]]),
        (
            "final is False",
            [[send(1, BOTH)], [receive(0, BOTH, reduce=True)]],
        ),
        (
            "combined after final",
            [[swap(1, BOTH, final=True)] * 2, [swap(0, BOTH, final=True)] * 2],
        ),
    ],
)
def test_faults_are_found(message, schedules):
    with pytest.raises(AssertionError, match=message):
        simulate(schedules, start(2))


def test_final_too_early_and_counting_twice_are_found():
    step = swap(1, TOP, final=True), swap(0, TOP, final=True)
    with pytest.raises(AssertionError, match="final is True with"):
        simulate([[step[0]], [step[1]], []], start(3))
    step = swap(1, TOP), swap(0, TOP)
    with pytest.raises(AssertionError, match="counted twice"):
        simulate([[step[0]] * 2, [step[1]] * 2, []], start(3))


def test_sending_what_is_not_there_is_found():
    blocks = [own_block(rank, 2, -1) for rank in range(2)]
    with pytest.raises(AssertionError, match="before it is there"):
        simulate([[send(1, (1, 2))], [receive(0, (1, 2))]], blocks)
