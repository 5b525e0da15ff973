"""Each error is also the builtin that a caller would catch."""

import pytest

import collectives
from collectives import errors

BUILTINS = {
    "InvalidArgumentError": ValueError,
    "MismatchError": ValueError,
    "UnsupportedError": TypeError,
    "CollectiveTimeoutError": TimeoutError,
    "PeerFailedError": ConnectionError,
    "BrokenCommunicatorError": RuntimeError,
    "DeviceError": RuntimeError,
    "ExhaustedError": RuntimeError,
    "LaunchError": RuntimeError,
}


@pytest.mark.parametrize(("name", "builtin"), BUILTINS.items())
def test_an_error_is_ours_and_a_builtin(name, builtin):
    error = getattr(collectives, name)
    assert issubclass(error, collectives.CollectiveError)
    assert issubclass(error, builtin)


def test_the_table_above_is_complete():
    public = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert public == {"CollectiveError", *BUILTINS}
