"""Every line of ours in docs/migrating.md and docs/strategies.md runs."""

import re
from pathlib import Path

import numpy as np
import pytest

import strategy as distribute
from strategy import PerReplica

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "migrating.md").read_text(encoding="utf-8")


def blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


OUTSIDE, INSIDE = (
    re.findall(r"^\| .* \| `([^|]+)` \|$", part, re.MULTILINE)
    for part in TEXT.split("Inside `run`")
)


@pytest.fixture(scope="module")
def program():
    """Return the names that all blocks together leave."""
    names = {}
    for block in blocks(TEXT):
        exec(block, names)
    return names


@pytest.fixture
def names(program):
    value = PerReplica([np.ones((3, 1)), np.ones((3, 1))])
    return {**program, "value": value}


def test_every_block_runs(program):
    assert len(blocks(TEXT)) > 5
    assert np.allclose(program["weight"], [[1], [2], [3]], atol=0.1)


@pytest.mark.parametrize("line", OUTSIDE)
def test_every_line_of_ours_runs(names, line):
    exec(line, names)


def test_every_line_of_ours_inside_run_runs(names):
    assert len(OUTSIDE) > 15
    assert len(INSIDE) == 5

    def replica():
        mine = dict(names)
        for line in INSIDE:
            exec(line, mine)
        return mine["context"].num_replicas_in_sync

    assert distribute.MirroredStrategy(["CPU:0", "CPU:1"]).run(replica) == 2


def test_every_block_about_strategies_runs():
    names = {}
    made = blocks((DOCS / "strategies.md").read_text(encoding="utf-8"))
    assert len(made) == 5
    for block in made:
        exec(block, names)
    assert names["weights"][0].numpy().tolist() == [-0.1] * 3
