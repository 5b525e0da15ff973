"""Imports go one way: a file imports from its own layer or from layers below."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The top level of each package from the ground up; what lies in a folder goes with it.
LAYERS = {
    "collectives": (
        "_version errors options ranges partition launchers launcher ending fence "
        "shadowing",
        "descriptor arena backing board waiting watchdog schedules buffers kernels "
        "gpu narrow narrow_loops handles recorder tracefile cycles forks window racing "
        "laid registered",
        "costs moves tables topology lanes transport farewell rollcall group",
        "algorithms eligibility selection running deriving opening opening_nccl "
        "opening_aware leaving missing spreading packing",
        "pickling moving plans device_plans gradient_packs",
        "calls agreement verdicts contents joining",
        "communicator methods background memory outsider submission among express "
        "exits startup shortcuts",
        "__init__",
        "doctor bench trace tune cli __main__",
    ),
    "strategy": (
        "errors options nest reduce_op placing devices indexed_slices partitioners "
        "cluster_resolver multi_worker_util",
        "contexts values variables variable_rules scatter cluster_check input_context "
        "data",
        "communication local_reduce packs shares reduction refusal distributed_dataset "
        "input_pipelines",
        "cross_device_ops local_nccl packed_ops collective_all_reduce worker_devices "
        "streams",
        "replicas replica_context gradients base extended replicated",
        "one_device mirrored central_storage multi_worker checkpoint",
        "experimental bench",
        "__init__",
        "cluster_command",
    ),
}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """Yield name, as in LAYERS, and path of every file of a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path.relative_to(ROOT / package).with_suffix("").parts[0], path


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted target of every import, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def target(package: str, dotted: str) -> str | None:
    """Return the module of `package` that an import reaches, None for another's."""
    parts = dotted.split(".")
    if parts[0] != package:
        return None
    known = {name for name, _ in modules(package)}
    return parts[1] if len(parts) > 1 and parts[1] in known else "__init__"


def layer_of(package: str) -> dict[str, int]:
    return {
        name: number
        for number, names in enumerate(LAYERS[package])
        for name in names.split()
    }


@pytest.mark.parametrize("package", LAYERS)
def test_every_module_has_its_layer(package):
    assert {name for name, _ in modules(package)} == set(layer_of(package))


@pytest.mark.parametrize("package", LAYERS)
def test_no_import_goes_up(package):
    layers = layer_of(package)
    upward = [
        f"{path.relative_to(ROOT)}:{line}: layer {layers[name]} imports {other}, "
        f"layer {layers[other]}"
        for name, path in modules(package)
        for line, dotted in imports(path)
        if (other := target(package, dotted)) and layers[other] > layers[name]
    ]
    assert not upward, "\n".join(upward)


def test_collectives_does_not_know_strategy():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {dotted}"
        for _, path in modules("collectives")
        for line, dotted in imports(path)
        if dotted.partition(".")[0] == "strategy"
    ]
    assert not wrong, "\n".join(wrong)


def test_strategy_uses_only_public_names_of_collectives():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {dotted}"
        for name, path in modules("strategy")
        # Parts of the command `ringfold`, which is in collectives.
        if name not in ("bench", "cluster_command")
        for line, dotted in imports(path)
        if target("collectives", dotted) not in (None, "__init__")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", LAYERS)
def test_import_brings_in_nothing_optional(package):
    script = (
        f"import sys, {package}\n"
        "optional = {'mpi4py', 'cupy', 'numba', 'torch', 'ml_dtypes', 'matplotlib'}\n"
        "sys.exit(' '.join(optional & set(sys.modules)) or 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
