"""The text of elementwise kernels, compiled for this processor by its C compiler.

Kernels of a few lines are the same in C and in CUDA's C++: what this shows is that the
text compiles, and what it computes. 16-bit floats and complex numbers are those of C.
"""

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMPILER = shutil.which("cc")
FLAGS = ("-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fwrapv")
TYPES = {
    "bool": "_Bool",
    "float16": "_Float16",
    "float32": "float",
    "float64": "double",
    "complex64": "float _Complex",
    "complex128": "double _Complex",
    **{
        f"{kind}{n}": f"{kind}{n}_t"
        for kind in ("int", "uint")
        for n in (8, 16, 32, 64)
    },
}
HEAD = """
#include <stddef.h>
#include <stdint.h>
static float __int_as_float(int from) {
    union {int from; float to;} both = {from};
    return both.to;
}
static unsigned __float_as_uint(float from) {
    union {float from; unsigned to;} both = {from};
    return both.to;
}
"""


def compiler_works(folder: Path) -> bool:
    """Tell whether there is a C compiler that knows 16-bit floats."""
    if COMPILER is None:
        return False
    (folder / "try.c").write_text("_Float16 half(float x) { return x; }")
    tried = subprocess.run(
        [COMPILER, *FLAGS, "-o", folder / "try.so", folder / "try.c"],
        capture_output=True,
    )
    return tried.returncode == 0


def maker(folder: Path) -> Callable[..., Any]:
    """Return what stands for `cupy.ElementwiseKernel`, on NumPy arrays."""

    def make(
        in_params: str, out_params: str, operation: str, name: str, **more: Any
    ) -> Any:
        inputs, outputs = _parameters(in_params), _parameters(out_params)
        parameters = inputs + outputs

        def call(*arrays: Any) -> None:
            assert len(arrays) == len(parameters)
            types: dict[str, str] = {}
            for (told, _), array in zip(parameters, arrays, strict=True):
                kind = TYPES[array.dtype.name]
                assert types.setdefault(told, kind) == kind, (told, array.dtype)
                assert told in ("T", array.dtype.name)
                assert array.flags.c_contiguous and array.size == arrays[0].size
            text = _text(types, inputs, outputs, operation)
            pointers = [array.ctypes.data for array in arrays]
            given = (ctypes.c_void_p * len(pointers))(*pointers)
            _function(folder, text)(ctypes.c_size_t(arrays[0].size), given)

        return call

    return make


def _parameters(text: str) -> list[tuple[str, str]]:
    pairs = [one.split() for one in text.split(",")]
    return [(told, name) for told, name in pairs]


def _text(
    types: dict[str, str],
    inputs: list[tuple[str, str]],
    outputs: list[tuple[str, str]],
    operation: str,
) -> str:
    lines = [HEAD, *(f"typedef {kind} {told};" for told, kind in types.items())]
    lines.append("void run(size_t count, void **given) {")
    for place, (told, name) in enumerate(inputs + outputs):
        lines.append(f"{told} *_{name} = given[{place}];")
    lines.append("for (size_t i = 0; i < count; ++i) {")
    lines += [f"const {told} {name} = _{name}[i];" for told, name in inputs]
    lines += [f"#define {name} (_{name}[i])" for _, name in outputs]
    return "\n".join([*lines, operation, "}}"])


def _function(folder: Path, text: str) -> Any:
    library = folder / f"{hashlib.sha256(text.encode()).hexdigest()}.so"
    if not library.exists():
        library.with_suffix(".c").write_text(text)
        command = [str(COMPILER), *FLAGS, "-o", library, library.with_suffix(".c")]
        made = subprocess.run(command, capture_output=True, text=True)
        assert made.returncode == 0, f"{made.stderr}\n{text}"
    return ctypes.CDLL(str(library)).run
