import pytest
from harness.threads import run_ranks

from collectives.bench.mode import Mode, probe, tell


@pytest.mark.parametrize(
    ("hand_over_us", "words"),
    [
        (0.4, "last-level cache shared"),
        (0.9, "last-level cache not shared"),
        (130.0, "no core each"),
    ],
)
def test_a_mode_in_words(hand_over_us, words):
    assert str(Mode(hand_over_us, 12.34)) == (
        f"hand-over {hand_over_us:.2f} us, window 12.3 GB/s, {words}"
    )


def test_one_rank_a_host_has_nobody_to_share_memory_with():
    assert run_ranks(1, probe) == [None]
    assert run_ranks(1, tell) == ["no two ranks of the first host share any"]


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_are_told_the_same(ranks):
    found = run_ranks(ranks, probe)
    assert found == [found[0]] * ranks
    assert found[0] is None or min(found[0]) > 0
