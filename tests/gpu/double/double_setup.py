"""Makes a process believe in the pretended devices; `install()` is called once.

By the harness for pytest, and by sitecustomize.py for whatever else is started with
this folder on PYTHONPATH. Nothing is imported before the process itself does.
"""

import atexit
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).parent)
VARIABLE = "CUPY_DOUBLE_PLACES"
STATUS = 70
"""What a process with misuse on record ends with."""


def install() -> None:
    """Prepare for what will be imported; once, and only with the variable set."""
    if VARIABLE not in os.environ or any(isinstance(f, _After) for f in sys.meta_path):
        return
    if HERE not in sys.path:
        sys.path.insert(0, HERE)
    sys.meta_path.insert(0, _After())
    for name, change in CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])
    if _place() == "-":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    atexit.register(_tell)


def _place() -> str:
    from cupy._config import rank

    places = os.environ[VARIABLE].split(",")
    return places[rank() % len(places)]


def _pretend_driver(module: Any) -> None:
    """Let the driver list the devices of this rank's host."""
    from cupy._config import CONFIG, uuid_of, uuid_text

    there = range(CONFIG.on_host)
    uuids = tuple(uuid_text(uuid_of(CONFIG.host, place)) for place in there)
    real = module.devices
    module.devices = lambda driver=None: uuids if driver is None else real(driver)


def _watch_mpi(module: Any) -> None:
    """Let the world look at what it is given, as soon as there is one."""
    from double_mpi import watched

    def watch() -> None:
        module.COMM_WORLD = watched(module, module.COMM_WORLD)

    def then_watch(init: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*arguments: Any) -> Any:
            provided = init(*arguments)
            watch()
            return provided

        return begin

    if module.Is_initialized():
        watch()
    else:
        module.Init, module.Init_thread = map(
            then_watch, (module.Init, module.Init_thread)
        )


CHANGES: dict[str, Callable[[Any], None]] = {
    "collectives.gpu.visible": _pretend_driver,
    "mpi4py.MPI": _watch_mpi,
}


class _After:
    """A finder that changes some modules as soon as they have been loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in CHANGES:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        if isinstance(spec, ModuleSpec) and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_change(module: Any) -> None:
                execute(module)
                CHANGES[name](module)

            spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


def _tell() -> None:
    """End with an error where misuse is still on record."""
    misuse = sys.modules.get("cupy._misuse")
    if misuse is not None and misuse.RECORDED:
        text = "".join(f"misuse of a device: {told}\n" for told in misuse.RECORDED)
        os.write(2, text.encode())
        os._exit(STATUS)
