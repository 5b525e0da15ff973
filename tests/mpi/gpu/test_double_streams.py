"""The double's streams: nothing is done before it is waited for, and races are seen."""

import numpy as np
import pytest
from harness.objections import refused

pytestmark = [pytest.mark.gpus, pytest.mark.gpu_all]


@pytest.fixture
def cp():
    return pytest.importorskip("cupy")


def peek(array):
    """Return what is in an array's memory at the moment, as a careless reader does."""
    return array._view.copy()


def filled(cp, value, count=8):
    array = cp.full(count, value, np.float32)
    cp.cuda.Device().synchronize()
    return array


def test_a_kernel_has_not_run_when_the_call_returns(cp):
    x = filled(cp, 1)
    x += 1
    assert (peek(x) == 1).all()
    cp.cuda.get_current_stream().synchronize()
    assert (peek(x) == 2).all()


def test_an_event_is_not_done_when_it_is_first_asked(cp):
    x = filled(cp, 1)
    x += 1
    event = cp.cuda.Event()
    event.record()
    assert not event.done
    assert event.done
    assert (peek(x) == 2).all()


@pytest.mark.parametrize("wait", ["stream", "event", "device", "get"])
def test_what_waits_sees_the_result(cp, wait):
    with cp.cuda.Stream(non_blocking=True) as stream:
        x = filled(cp, 1)
        x *= 5
        if wait == "stream":
            stream.synchronize()
        elif wait == "event":
            stream.record().synchronize()
        elif wait == "device":
            cp.cuda.Device().synchronize()
        else:
            assert (x.get() == 5).all()
    assert (peek(x) == 5).all()


def test_waiting_for_one_stream_says_nothing_of_another(cp):
    x = filled(cp, 1)
    one, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with one:
        x += 1
    other.synchronize()
    assert (peek(x) == 1).all()
    one.synchronize()


def test_the_default_stream_comes_after_blocking_streams_and_before_them(cp):
    x = filled(cp, 1)
    stream = cp.cuda.Stream()
    with stream:
        x += 1
    x *= 10
    with stream:
        x += 1
    stream.synchronize()
    assert (peek(x) == 21).all()


def test_a_non_blocking_stream_is_in_no_order_with_the_default_stream(cp):
    x = filled(cp, 1)
    stream = cp.cuda.Stream(non_blocking=True)
    x += 1
    with stream, refused("in no order"):
        x += 1
    cp.cuda.Device().synchronize()


@pytest.mark.parametrize("ordered", [True, False])
def test_two_streams_need_an_event_between_them(cp, ordered):
    x = filled(cp, 1)
    one, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with one:
        x += 1
    if ordered:
        other.wait_event(one.record())
        with other:
            y = x + 1
        other.synchronize()
        assert (peek(y) == 3).all()
        return
    with other, refused("in no order"):
        x + 1
    one.synchronize()


def test_a_race_is_one_even_where_the_work_has_been_done_by_chance(cp):
    x = filled(cp, 1)
    one, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with one:
        x += 1
    event = one.record()
    assert not event.done  # which drives the stream, but tells the host nothing
    assert (peek(x) == 2).all()
    with other, refused("in no order"):
        x + 1
    one.synchronize()


def test_two_streams_may_read_the_same(cp):
    x = filled(cp, 1)
    for _ in range(2):
        with cp.cuda.Stream(non_blocking=True) as stream:
            y = x + 1
            stream.synchronize()
            assert (peek(y) == 2).all()


def test_a_thread_begins_with_the_default_stream(cp):
    import threading

    seen = []
    with cp.cuda.Stream():
        look = lambda: seen.append(cp.cuda.get_current_stream().ptr)  # noqa: E731
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [0]


def test_a_stream_that_was_destroyed_is_no_stream(cp):
    stream = cp.cuda.Stream()
    external = cp.cuda.ExternalStream(stream.ptr)
    del stream
    with refused("destroyed"):
        external.synchronize()
