"""The memory fence for processors that let stores overtake each other."""

import os
import platform

import pytest

from collectives.fence import ORDERED, SYSTEM_CALL, fence, membarrier, trusted


def test_there_is_one_wherever_it_is_needed_or_no_window():
    assert (fence is None) == (platform.machine() in ORDERED)
    assert trusted or fence is not None


@pytest.mark.skipif(
    platform.machine() not in SYSTEM_CALL, reason="no number is known for it here"
)
def test_the_system_call_works_on_this_machine():
    """Not needed on x86, but the same call as elsewhere."""
    if not hasattr(os, "memfd_create"):
        pytest.skip("not Linux")
    call = membarrier(platform.machine())
    for _ in range(100):
        call()


def test_a_processor_that_is_not_known_is_an_error():
    with pytest.raises(OSError, match="no memory fence is known for a68000"):
        membarrier("a68000")
