"""Which GPUs a process may use, from the system and the environment."""

import pytest

from collectives.gpu import visible


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (None, ("GPU-a", "GPU-b", "GPU-c")),
        ("", ()),
        ("-1", ()),
        ("2,0", ("2", "0")),
        (" GPU-c , GPU-a", ("GPU-c", "GPU-a")),
        ("MIG-1", ("MIG-1",)),
        ("1,-1,0", ("1",)),
        ("1,3,0", ("1",)),  # CUDA stops at the first that is not there
    ],
)
def test_the_environment_names_those_that_are_seen(monkeypatch, told, names):
    monkeypatch.setattr(visible, "devices", lambda: ("GPU-a", "GPU-b", "GPU-c"))
    environ = {} if told is None else {visible.VISIBLE: told}
    assert visible.visible_devices(environ) == names


def test_without_a_driver_there_are_none(monkeypatch):
    monkeypatch.setattr(visible, "devices", tuple)
    assert visible.visible_devices({visible.VISIBLE: "0,1"}) == ()
