"""Waiting: deadlines, gaps that do not count, and peers that are no more."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from collectives import waiting
from collectives.waiting import (
    GAP_S,
    HEALTH_S,
    Liveness,
    PeerLost,
    TimedOut,
    wait_until,
)


class Clock:
    """A clock that stands still unless somebody sleeps or yields."""

    def __init__(self):
        self.now = 0.0
        self.gaps = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += self.gaps.pop(0) if self.gaps else seconds

    def give_way(self):
        self.sleep(0.001)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(waiting, "yield_core", clock.give_way)
    return clock


def after(polls):
    left = iter(range(polls))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("spins", [0, 3])
@pytest.mark.parametrize("polls", [0, 1, 3, 4, 500])
def test_it_returns_when_ready_however_long_that_takes(clock, spins, polls):
    wait_until(after(polls), timeout_s=1e6, spins=spins)


def test_spinning_gives_nothing_away(clock):
    wait_until(after(99), timeout_s=1, spins=100)
    assert clock.now == 0


def test_the_deadline(clock):
    with pytest.raises(TimedOut):
        wait_until(lambda: False, timeout_s=5)
    assert 5 <= clock.now < 5.01


def test_ready_at_the_last_moment_counts(clock):
    wait_until(lambda: clock.now > 4.9, timeout_s=5)


def test_short_waits_yield_and_long_ones_sleep(monkeypatch, clock):
    yields, sleeps = [], []
    monkeypatch.setattr(
        waiting, "yield_core", lambda: (yields.append(clock.now), clock.give_way())
    )
    monkeypatch.setattr(time, "sleep", lambda s: (sleeps.append(s), clock.sleep(s)))
    with pytest.raises(TimedOut):
        wait_until(lambda: False, timeout_s=1)
    assert max(yields) <= waiting.YIELD_S
    assert sleeps == sorted(sleeps)
    assert (sleeps[0], sleeps[-1]) == waiting.SLEEP_S


def test_a_gap_in_our_own_polling_counts_little(clock):
    """A suspended job or a closed lid: the clock goes on and we do not."""
    clock.gaps = [3600.0] * 4
    wait_until(lambda: clock.now > 4 * 3600 + 1, timeout_s=4 * GAP_S + 2)
    with pytest.raises(TimedOut):
        clock.gaps = [3600.0] * 4
        wait_until(lambda: False, timeout_s=4 * GAP_S)
    assert clock.now > 8 * 3600


def test_health_is_looked_after_at_intervals(clock):
    heard = []
    with pytest.raises(TimedOut):
        wait_until(lambda: False, timeout_s=1, health=heard.append)
    assert heard == sorted(heard)
    assert heard[0] >= HEALTH_S
    assert all(b - a >= HEALTH_S for a, b in pairwise(heard))
    assert len(heard) > 0.8 / HEALTH_S


def test_a_lost_peer_ends_the_wait(clock):
    def health(waited):
        raise PeerLost(3, "died")

    with pytest.raises(PeerLost, match="rank 3 died") as caught:
        wait_until(lambda: False, timeout_s=100, health=health)
    assert (caught.value.rank, caught.value.what) == (3, "died")
    assert clock.now < 1


def test_a_short_wait_does_not_look_after_health(clock):
    def health(waited):
        raise AssertionError("too early")

    wait_until(after(10), timeout_s=1, spins=0, health=health)


@pytest.fixture
def children():
    script = "import sys; sys.stdin.read()"
    started = [
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
        for _ in range(3)
    ]
    yield started
    for child in started:
        child.stdin.close()
        child.wait()


def until_dead(liveness, count):
    wait_until(lambda: len(liveness.dead()) >= count, timeout_s=20, spins=0)
    return liveness.dead()


def test_the_dead_are_found_whichever_way_they_ended(children):
    liveness = Liveness({rank + 4: child.pid for rank, child in enumerate(children)})
    assert liveness.dead() == []
    children[2].send_signal(signal.SIGKILL)
    assert until_dead(liveness, 1) == [6]
    children[0].stdin.close()
    assert until_dead(liveness, 2) == [4, 6]
    children[0].wait()  # reaped: its pid may now belong to somebody else
    assert liveness.dead() == [4, 6]
    liveness.close()
    assert liveness.dead() == []
    liveness.close()


def test_closing_gives_the_descriptors_back(children):
    before = len(os.listdir("/proc/self/fd"))
    liveness = Liveness({rank: child.pid for rank, child in enumerate(children)})
    assert len(os.listdir("/proc/self/fd")) == before + 3
    liveness.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pid_that_is_not_there_is_not_watched():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    liveness = Liveness({1: ended.pid})
    assert liveness.dead() == []
    liveness.close()


def test_without_pidfd_nothing_is_watched(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    liveness = Liveness({1: os.getpid()})
    assert liveness.dead() == []
    liveness.close()
