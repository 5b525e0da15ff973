"""Whole jobs whose strategy cannot work: they end, soon, and say why."""

import json

import pytest
from harness.launch import run_mpi

SCRIPT = """
import collectives
import strategy as distribute
comm = collectives.world()
"""


@pytest.mark.parametrize(
    ("tf_config", "text"),
    [
        ('{"cluster": ', "TF_CONFIG is not valid JSON"),
        (
            json.dumps(
                {
                    "cluster": {"worker": ["a:1", "b:1"]},
                    "task": {"type": "worker", "index": 0},
                }
            ),
            "TF_CONFIG task.index: worker 0 is claimed by ranks 0, 1",
        ),
        (
            json.dumps(
                {
                    "cluster": {"worker": ["a:1", "b:1", "c:1"]},
                    "task": {"type": "worker", "index": 0},
                }
            ),
            "TF_CONFIG cluster has 3 task(s) in chief and worker, MPI has 2 rank(s)",
        ),
    ],
)
def test_a_wrong_tf_config_ends_the_job(tf_config, text):
    script = SCRIPT + "distribute.MultiWorkerMirroredStrategy()\nprint('made')"
    ended = run_mpi(2, script, env={"TF_CONFIG": tf_config})
    assert ended.returncode != 0
    assert text in ended.stderr
    assert "made" not in ended.stdout


def test_timeout_seconds_is_the_deadline_of_a_call():
    script = (
        SCRIPT
        + """
import time
options = distribute.CommunicationOptions(timeout_seconds=2)
strategy = distribute.MultiWorkerMirroredStrategy(communication_options=options)
if comm.rank == 0:
    try:
        strategy.reduce("SUM", 1.0, axis=None)
    except TimeoutError as error:
        print("timed out:", error)
else:
    time.sleep(600)
"""
    )
    ended = run_mpi(2, script)  # ends before its own deadline: no rank sleeps on
    assert "timed out:" in ended.stdout, ended.stderr
    assert "rank 1" in ended.stdout or "ranks [1]" in ended.stdout
    assert ended.returncode != 0
