"""Whichever algorithm is the fastest of late makes the next call."""

import itertools

import pytest

from collectives.racing import PATIENCE, TRIALS, Heat, Race

RIVALS = ("shared", "direct", "native")


def run(heat, calls, *seconds):
    """Make calls that take each rival so long; return what each rival has run."""
    ran = [0] * len(heat.rivals)
    for _ in range(calls):
        number = heat.pick()
        ran[number] += 1
        heat.took(number, seconds[number])
    return ran


def test_before_there_are_times_the_first_one_is_the_best():
    heat = Heat(RIVALS)
    assert heat.best() == (0, 0.0)
    assert heat.times_s() == {}
    assert heat.pick() == 0


def test_everyone_is_tried_before_anything_is_concluded():
    heat = Heat(RIVALS)
    assert run(heat, TRIALS * len(RIVALS), 3.0, 2.0, 1.0) == [TRIALS] * len(RIVALS)
    assert heat.best() == (2, 1.0)
    assert heat.times_s() == {"shared": 3.0, "direct": 2.0, "native": 1.0}


@pytest.mark.parametrize("order", [*itertools.permutations([1.0, 2.0, 5.0])])
def test_the_fastest_makes_nearly_all_calls(order):
    heat = Heat(RIVALS)
    ran = run(heat, 10_000, *order)
    assert ran[order.index(1.0)] > 9700
    assert min(ran) > TRIALS, "the others must be tried again now and then"


@pytest.mark.parametrize(
    "seconds",
    [(1.0, 1.01, 1.1), (1.0, 2.0, 3.0), (1.0, 10.0, 100.0), (4.0, 1.0, 900.0)],
)
def test_trying_the_others_costs_a_few_percent_at_most(seconds):
    heat, calls = Heat(RIVALS), 20_000
    run(heat, TRIALS * len(RIVALS), *seconds)
    ran = run(heat, calls, *seconds)
    took = sum(count * each for count, each in zip(ran, seconds, strict=True))
    limit = (len(RIVALS) - 1) / PATIENCE + 0.01
    assert took <= calls * min(seconds) * (1 + limit) + max(seconds)


def test_one_slow_call_makes_no_difference():
    heat = Heat(RIVALS)
    run(heat, 20, 1.0, 2.0, 3.0)
    heat.took(0, 100.0)
    assert heat.best() == (0, 1.0)
    assert run(heat, 20, 1.0, 2.0, 3.0)[0] >= 18  # the others are tried once each


def test_a_change_of_the_machine_is_noticed_within_a_few_calls():
    heat = Heat(RIVALS)
    run(heat, 1000, 1.0, 2.0, 3.0)
    ran = run(heat, 100, 4.0, 2.0, 3.0)
    assert ran[1] > 80, "what became slow must not be kept"


def test_what_has_become_fast_is_found():
    heat = Heat(RIVALS)
    run(heat, 1000, 1.0, 2.0, 3.0)
    ran = run(heat, 1000, 1.0, 2.0, 0.5)
    assert ran[2] > 700


def test_calls_of_about_one_size_share_a_heat():
    race = Race()
    heat = race.heat("all_reduce", 1 << 20, RIVALS)
    assert race.heat("all_reduce", (1 << 21) - 1, RIVALS) is heat
    assert race.heat("all_reduce", 1 << 21, RIVALS) is not heat
    assert race.heat("reduce", 1 << 20, RIVALS) is not heat
    assert race.heat("all_reduce", 1 << 20, RIVALS[:2]) is not heat
