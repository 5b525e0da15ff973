"""Pretended GPUs for a job: which variables make its ranks use the double of CuPy.

The double lies in tests/gpu/double; its README says what it proves.
"""

import os
import sys
from pathlib import Path

DOUBLE = str(Path(__file__).parents[1] / "gpu" / "double")


def variables(places: str, hosts: str = "") -> dict[str, str]:
    """Return the environment of ranks on pretended devices.

    Args:
        places: the device of each rank, "0,0,1"; "-" for one that sees none, "x" for
            one on a host without a driver.
        hosts: the host of each rank, "0,0,1"; one host where empty.
    """
    path = os.environ.get("PYTHONPATH", "")
    return {
        "CUPY_DOUBLE_PLACES": places,
        "CUPY_DOUBLE_HOSTS": hosts or "0",
        "PYTHONPATH": f"{DOUBLE}{os.pathsep}{path}" if path else DOUBLE,
    }


def install(places: str, hosts: str = "") -> None:
    """Make this process a rank on pretended devices, and those that it starts."""
    os.environ.update(variables(places, hosts))
    sys.path.insert(0, DOUBLE)
    import double_setup

    double_setup.install()


def all_have(places: list[str]) -> bool:
    """Tell whether every rank has a device."""
    return all(place.isdigit() for place in places)


def misuse() -> list[str]:
    """Return what the double has objected to since it was last asked."""
    module = sys.modules.get("cupy._misuse")
    return module.forget() if module is not None else []
