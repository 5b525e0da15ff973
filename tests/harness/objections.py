"""What the double of CuPy must object to, in tests of the double itself."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness import gpus


@contextmanager
def refused(match: str) -> Iterator[None]:
    """Inside, the double must raise, with this in its text."""
    from cupy import Misuse

    with pytest.raises(Misuse, match=match):
        yield
    gpus.misuse()


@contextmanager
def noted(match: str) -> Iterator[None]:
    """Inside, the double must record something, with this in its text."""
    yield
    told = gpus.misuse()
    assert any(re.search(match, one) for one in told), told
