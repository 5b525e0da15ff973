import pytest

import collectives
import strategy as distribute
from strategy import StructureError
from strategy.devices import canonical, local_devices


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
