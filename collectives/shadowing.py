"""A user's own `strategy.py`, which Python finds before the package of that name.

The folder of a script comes first on Python's path. The package cannot notice, since it
is never loaded; so the doctor looks into the folder, and an uncaught error that comes
of it is explained.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

OURS = Path(__file__).resolve().parents[1] / "strategy" / "__init__.py"
REMEDY = "rename it, or start scripts with python -P (Python 3.11 or later)"


def hiding(folder: Path) -> Path | None:
    """Return the file that a script in `folder` imports as strategy, if not ours."""
    files = [folder / "strategy" / "__init__.py", folder / "strategy.py"]
    found = next((file for file in files if file.exists()), None)
    if found is None:
        spec = find_spec("strategy")  # another one may come first on PYTHONPATH
        found = Path(spec.origin) if spec and spec.origin else None
    return None if found is None or found.resolve() == OURS else found


def explained(error: BaseException) -> str:
    """Return what is behind an error about a name that only our package has, or ''."""
    file, missing = None, None
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        if error.obj.__name__ == "strategy":
            file, missing = error.obj.__file__, error.name
    elif isinstance(error, ImportError) and error.name == "strategy":
        found = re.search(r"cannot import name '(\w+)'", str(error))
        file, missing = error.path, found and found[1]
    if file is None or Path(file).resolve() == OURS:
        return ""
    ours = re.findall(r'^    "(\w+)",$', OURS.read_text(encoding="utf-8"), re.MULTILINE)
    if missing not in ours:
        return ""
    return f"ringfold: strategy is {file}, not Ringfold's package: {REMEDY}"
