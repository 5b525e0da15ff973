"""A user's own strategy.py."""

import subprocess
import sys

import pytest

from collectives.shadowing import OURS, hiding

LINES = {
    "attribute": "import strategy as distribute\ndistribute.MirroredStrategy()\n",
    "import": "from strategy import MirroredStrategy\n",
}


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "collectives", script.name, *arguments],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("kind", LINES)
def test_an_error_that_comes_of_it_is_explained(tmp_path, kind):
    (tmp_path / "strategy.py").write_text("def plan(): ...\n")
    script = tmp_path / "train.py"
    script.write_text(LINES[kind])
    ended = run(script)
    assert ended.returncode == 1
    assert f"strategy is {tmp_path}/strategy.py, not Ringfold's" in ended.stderr
    assert "rename it" in ended.stderr


def test_a_script_that_is_called_so_itself(tmp_path):
    script = tmp_path / "strategy.py"
    script.write_text(LINES["attribute"])
    assert "not Ringfold's package: rename it" in run(script).stderr


@pytest.mark.parametrize("line", ["strategy.plant()", "strategy.plan().x", "1 / 0"])
def test_other_errors_are_left_alone(tmp_path, line):
    (tmp_path / "strategy.py").write_text("def plan(): ...\n")
    script = tmp_path / "train.py"
    script.write_text(f"import strategy\n{line}\n")
    ended = run(script)
    assert ended.returncode == 1
    assert "Ringfold" not in ended.stderr


def test_what_is_hiding(tmp_path):
    assert hiding(tmp_path) is None
    assert hiding(OURS.parents[1]) is None
    (tmp_path / "strategy").mkdir()
    assert hiding(tmp_path) is None  # a folder of data does not hide a package
    (tmp_path / "strategy" / "__init__.py").touch()
    assert hiding(tmp_path) == tmp_path / "strategy" / "__init__.py"


def test_the_doctor_warns(tmp_path):
    (tmp_path / "strategy.py").touch()
    ended = subprocess.run(
        [sys.executable, "-m", "collectives", "doctor", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert f"import strategy finds {tmp_path}/strategy.py" in ended.stdout
