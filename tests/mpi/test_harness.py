"""The harness under its own conditions: markers, and waiting without blocking."""

import threading
import time

import pytest
from harness.exchange import Exchange


@pytest.fixture(scope="module")
def exchange():
    return Exchange()


@pytest.mark.ranks(2, 3)
def test_runs_only_on_the_marked_sizes(exchange):
    assert exchange.size in (2, 3)


def test_everyone_gets_what_everyone_gave(exchange):
    for size in (1, 100_000):  # the second does not fit into one MPI packet
        got = exchange.all_gather((exchange.rank, "x" * size))
        assert got == [(rank, "x" * size) for rank in range(exchange.size)]


def test_who_waits_says_for_whom(exchange):
    seen = set()
    over = threading.Event()

    def look():
        while not over.wait(0.01):
            seen.update(exchange.awaited)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        if exchange.rank == exchange.size - 1:
            time.sleep(0.3)
        exchange.all_gather(None)
    finally:
        over.set()
        watcher.join()
    if exchange.rank != exchange.size - 1:
        assert exchange.size - 1 in seen
    assert exchange.awaited == []
