"""What the documents show: their programs run, their commands print what is there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from harness.launch import run_mpi

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("input.md", "clusters.md", "checkpoints.md")

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = """
import sys
from collectives.cli import main
sys.exit(main(sys.argv[1:]))
"""


def blocks(name, kind):
    text = (DOCS / name).read_text(encoding="utf-8")
    return [found[2] for found in BLOCK.finditer(text) if found[1] == kind]


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", NAMES)
def test_the_programs_run(name, ranks):
    program = "\n".join(blocks(name, "python"))
    ended = run_mpi(ranks, program, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_the_programs_need_no_mpi(name, tmp_path):
    hidden = "import sys; sys.modules['mpi4py'] = None"
    program = "\n".join([hidden, *blocks(name, "python")])
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("block", blocks("clusters.md", "console"))
def test_the_commands_print_what_is_shown(block):
    line, shown = block.split("\n", 1)
    found = re.fullmatch(r"\$ mpirun -n (\d+) ringfold (.*)", line)
    ended = run_mpi(int(found[1]), COMMAND, args=shlex.split(found[2]))
    assert ended.returncode == 0, ended.stderr
    printed = re.sub(r"[\w.-]+(?=:88\d\d)", "node1", ended.stdout)
    assert printed == shown
