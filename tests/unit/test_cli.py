import os
import subprocess
import sys
from pathlib import Path

import pytest

import collectives
from collectives import cli

HERE = Path(__file__).resolve().parents[2]


def ringfold(*arguments, cwd=None):
    """Run `python -m collectives` as one process that no launcher started."""
    return subprocess.run(
        [sys.executable, "-m", "collectives", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ringfold {collectives.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(arguments, capsys):
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert f"  {command} " in text


@pytest.mark.parametrize("arguments", [["bnech"], ["--frob"], ["bench", "all_redcue"]])
def test_an_unknown_word_is_one_line_on_stderr_and_status_2(arguments, capsys):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ringfold: error: ")
    assert err.count("\n") == 1
    assert repr(arguments[-1]) in err


@pytest.mark.parametrize("command", ["bench", "doctor"])
def test_help_of_a_command(command):
    done = ringfold(command, "--help")
    assert done.returncode == 0
    assert f"usage: ringfold {command}" in done.stdout


def test_a_script_is_run_as_python_would(tmp_path):
    (tmp_path / "helper.py").write_text("WORD = 'beside'\n")
    script = tmp_path / "my script.py"
    script.write_text(
        "import sys, helper\n"
        "print(__name__, __file__, sys.argv, helper.WORD, sys.path[0])\n"
    )
    done = ringfold(script, "-x", "bench")
    assert done.stderr == ""
    arguments = [str(script), "-x", "bench"]
    assert done.stdout == f"__main__ {script} {arguments} beside {tmp_path}\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [("raise SystemExit(7)", 7, ""), ("1 / 0", 1, "ZeroDivisionError")],
)
def test_a_scripts_failure_is_the_exit_status(tmp_path, text, status, message):
    script = tmp_path / "script.py"
    script.write_text(text)
    done = ringfold(script)
    assert done.returncode == status
    assert message in done.stderr


WITHOUT_MPI = """
import sys
sys.modules["mpi4py"] = None
from collectives.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-b", "64", "-e", "64"], 0, "N/A  auto (circulant)"),
        (["--algorithm", "mpi,ring"], 2, "algorithm 'mpi' needs mpi4py"),
    ],
)
def test_bench_where_there_is_no_mpi(tmp_path, arguments, status, message):
    script = tmp_path / "script.py"
    script.write_text(WITHOUT_MPI)
    done = ringfold(script, "bench", "all_gather", *arguments)
    assert done.returncode == status
    assert message in done.stdout + done.stderr


def test_a_wrong_variable_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "collectives", "bench", "barrier"],
        env={**os.environ, "PYTHONPATH": str(HERE), "RINGFOLD_TIMOUT_S": "5"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "RINGFOLD_TIMOUT_S" in done.stderr
