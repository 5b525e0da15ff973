import subprocess
import sys
from pathlib import Path

import pytest

import collectives
import strategy as distribute
from strategy import StructureError, devices
from strategy.devices import canonical, local_devices, place_named, share_of
from strategy.worker_devices import without_gpu

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("CPU:0", "/job:localhost/replica:0/task:0/device:CPU:0"),
        ("/cpu:3", "/job:localhost/replica:0/task:0/device:CPU:3"),
        ("/gpu:1", "/job:localhost/replica:0/task:0/device:GPU:1"),
        ("/device:GPU:01", "/job:localhost/replica:0/task:0/device:GPU:1"),
        (
            "/job:worker/task:2/device:CPU:0",
            "/job:worker/replica:0/task:2/device:CPU:0",
        ),
    ],
)
def test_names_have_one_form(given, full):
    assert canonical(given) == full == canonical(full)


@pytest.mark.parametrize("given", ["", "CPU", "TPU:0", "CPU:-1", 0, None])
def test_what_names_no_device(given):
    with pytest.raises(ValueError, match="wanted a name"):
        canonical(given)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["CPU:0", "/cpu:0"], StructureError),
        (["CPU:0", "/job:worker/task:1/CPU:0"], ValueError),
        (["/job:worker/task:0/CPU:0", "/job:worker/task:1/CPU:0"], RuntimeError),
    ],
)
def test_devices_that_are_not_those_of_one_process(given, error):
    with pytest.raises(error, match="devices are"):
        distribute.MirroredStrategy(given)


@pytest.mark.parametrize(
    "make",
    [
        lambda: distribute.MirroredStrategy(["GPU:0", "GPU:1"]),
        lambda: distribute.OneDeviceStrategy("/gpu:0"),
        lambda: distribute.experimental.CentralStorageStrategy(["CPU:0", "GPU:0"]),
    ],
)
def test_gpus_are_refused_instead_of_quietly_not_used(make):
    with pytest.raises(collectives.UnsupportedError, match=r"no GPU:0.*sees no GPU"):
        make()


def test_without_devices_there_is_one():
    assert len(local_devices(None)) == len(local_devices([])) == 1
    central = distribute.experimental.CentralStorageStrategy()
    assert central.extended.parameter_devices == central.extended.worker_devices
    with pytest.raises(RuntimeError, match="no devices"):
        _ = distribute.get_strategy().extended.worker_devices


@pytest.fixture
def sees(monkeypatch):
    """Return a function that pretends that this process sees some GPUs, and CuPy."""

    def pretend(*names, cupy=True):
        monkeypatch.setattr(collectives.gpu, "visible_devices", lambda: names)
        monkeypatch.setattr(devices, "find_spec", lambda name: cupy or None)

    return pretend


def test_without_devices_all_gpus_are_taken(sees):
    sees("GPU-a", "GPU-b")
    assert list(map(place_named, local_devices(None))) == [0, 1]
    sees("GPU-a", "GPU-b", cupy=False)
    assert list(map(place_named, local_devices(None))) == [None]


def test_a_gpu_that_is_not_there_is_refused_by_what_is(sees):
    sees("GPU-a", "MIG-b")
    wanted = r"no GPU:2 GPU:7: this process sees GPU:0 \(GPU-a\), GPU:1 \(MIG-b\)"
    with pytest.raises(collectives.UnsupportedError, match=wanted):
        local_devices(["CPU:0", "GPU:1", "GPU:2", "GPU:7"])


@pytest.mark.skipif(bool(devices.find_spec("cupy")), reason="CuPy is installed")
def test_gpus_without_cupy_are_refused_with_how_to_get_it(sees):
    sees("GPU-a", cupy=False)
    with pytest.raises(collectives.UnsupportedError, match="pip install"):
        distribute.OneDeviceStrategy("GPU:0")


@pytest.mark.parametrize(
    ("seen", "shares"),
    [
        ([["a", "b"]] * 2, [0, 1]),
        ([["b"], ["a"]], [0, 0]),  # a launcher that shows each rank one of its own
        ([["1", "0", "7"]] * 3, [0, 1, 2]),
        ([["a", "b"]] * 5, [0, 1, 0, 1, 0]),
        ([["a"], ["a"], ["b", "c"], ["b", "c"]], [0, 0, 0, 1]),
    ],
)
def test_each_rank_of_a_host_takes_one_of_those_that_it_sees(seen, shares):
    ranks = range(len(seen))
    assert [share_of(rank, ranks, seen) for rank in ranks] == shares


def test_each_host_begins_anew():
    seen = [["0", "1"]] * 4
    hosts = [(0, 2), (1, 3)]
    shares = [share_of(rank, hosts[rank % 2], seen) for rank in range(4)]
    assert shares == [0, 0, 1, 1]


def test_ranks_without_a_gpu_are_named():
    assert without_gpu([("GPU:0",), ("GPU:0", "CPU:0"), ("CPU:0",)]) == (
        "rank(s) 1 2 have no GPU"
    )
    assert without_gpu([("GPU:0",), ("GPU:1",)]) == ""


def test_cpus_need_no_cupy(tmp_path):
    (tmp_path / "cupy.py").write_text("raise SystemExit('cupy was imported')")
    script = """
import numpy as np
import strategy as distribute
for made in (
    distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    distribute.CentralStorageStrategy(["CPU:0", "CPU:1"]),
    distribute.OneDeviceStrategy("CPU:0"),
    distribute.MultiWorkerMirroredStrategy(),
):
    with made.scope():
        total = distribute.VariableAggregation.SUM
        w = distribute.Variable(np.ones(3), aggregation=total)
    replica = distribute.get_replica_context
    made.run(lambda: w.assign_add(replica().all_reduce("SUM", w)))
    made.reduce("MEAN", np.ones(2), axis=0)
    list(made.experimental_distribute_dataset([np.ones(4)]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
