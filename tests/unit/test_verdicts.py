"""The words in which a disagreement is told."""

import pytest

from collectives.descriptor import Descriptor
from collectives.verdicts import describe_mismatch

SUM = Descriptor("all_reduce", dtype="float32", op="sum", shape=(3,), algorithm="ring")
MAX = Descriptor("all_reduce", dtype="float32", op="max", shape=(3,), algorithm="ring")
BARRIER = Descriptor("barrier")


@pytest.mark.parametrize(
    ("descriptors", "text"),
    [
        (
            [SUM, MAX],
            "call #7: the ranks disagree on op; "
            "rank 0: all_reduce(float32, sum, shape (3,), ring); "
            "rank 1: all_reduce(float32, max, shape (3,), ring)",
        ),
        (
            [BARRIER, SUM, BARRIER],
            "call #7: the ranks disagree on collective; ranks 0 2: barrier; "
            "rank 1: all_reduce(float32, sum, shape (3,), ring)",
        ),
        (
            [SUM] * 11 + [BARRIER],
            "call #7: the ranks disagree on collective; "
            "ranks 0 1 2 3 4 5 6 7 and 3 more: "
            "all_reduce(float32, sum, shape (3,), ring); rank 11: barrier",
        ),
        (
            [BARRIER, Descriptor("barrier", invalid="no")],
            "call #7: the ranks disagree on invalid; rank 0: barrier; "
            "rank 1: barrier with an invalid argument: no",
        ),
        (
            [Descriptor("barrier", sequence=6), Descriptor("barrier", sequence=7)],
            "call #7: the ranks disagree on sequence; rank 0: barrier as call #6; "
            "rank 1: barrier as call #7",
        ),
    ],
)
def test_a_mismatch_in_words(descriptors, text):
    assert describe_mismatch(7, descriptors) == text


def test_a_thousand_ranks_still_make_a_short_line():
    text = describe_mismatch(1, [SUM, *[MAX] * 999])
    assert len(text) < 300
    assert "and 991 more" in text
