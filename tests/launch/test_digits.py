"""The digits example: the same training on any number of ranks."""

import json
import re
from pathlib import Path

import pytest
from harness import gpus
from harness.launch import run_mpi

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / "docs" / "examples" / "train_digits.py").read_text(encoding="utf-8")


def train(ranks, folder, *arguments, env=None):
    """Run the example and return what it did and its losses."""
    path = folder / f"losses-{ranks}.json"
    told = ["--losses", str(path), *arguments]
    ended = run_mpi(ranks, SCRIPT, timeout=180, env=env, args=told)
    return ended, json.loads(path.read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return train(1, tmp_path_factory.mktemp("alone"))


def test_it_learns(alone):
    ended, losses = alone
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert losses[-1] < 0.1 < losses[0]
    assert ended.stderr == ""


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_change_the_losses_by_rounding_only(alone, tmp_path, ranks):
    ended, losses = train(ranks, tmp_path, "--epochs", "4")
    assert losses == pytest.approx(alone[1][:4], rel=0, abs=1e-5)
    assert f"weights bit-identical on {ranks} rank(s): " in ended.stdout


def test_pretended_gpus_give_the_bits_of_the_host(tmp_path):
    def last_line(env):
        ended, losses = train(2, tmp_path, "--epochs", "2", env=env)
        (line,) = re.findall("weights bit-identical .*", ended.stdout)
        return line, losses

    on_host = last_line(None)
    for places in ("0,1", "0,0", "0,-"):  # their own, one for both, one without
        assert last_line(gpus.variables(places)) == on_host


def test_one_bar_and_one_line_an_epoch(tmp_path):
    ended, losses = train(2, tmp_path, "--epochs", "2")
    lines = ended.stdout.replace("\r", "\n").split("\n")
    for epoch, loss in enumerate(losses, start=1):
        assert lines.count(f"epoch {epoch:2d}  loss {loss:.6f}") == 1
    assert sum(line.startswith("epoch") for line in lines) == 2
    assert sum(line.startswith("training:   0%") for line in lines) == 1


def test_poor_accuracy_is_a_failure(tmp_path):
    ended, _ = train(2, tmp_path, "--epochs", "1", "--learning-rate", "1e-6")
    assert "test accuracy 0." in ended.stdout
    assert ended.returncode != 0
