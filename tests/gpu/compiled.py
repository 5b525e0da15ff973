"""`ElementwiseKernel`: the very text of a kernel, compiled by the C compiler.

What is the same in C and in CUDA's C++ is enough for kernels of a few lines; complex
numbers and 16-bit floats are those of C. Needs `cc` (gcc 12 or later).
"""

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cupy import _engine
from cupy.cuda import runtime
from cupy._misuse import Misuse

C_TYPES = {
    "bool": "_Bool",
    "float16": "_Float16",
    "float32": "float",
    "float64": "double",
    "complex64": "float _Complex",
    "complex128": "double _Complex",
    **{f"int{n}": f"int{n}_t" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
}
HEAD = """
#include <stdint.h>
#include <stddef.h>
#define __device__ static inline
static inline float __int_as_float(int i) { union {int i; float f;} u = {i}; return u.f; }
static inline unsigned __float_as_uint(float f) { union {float f; unsigned i;} u = {f}; return u.i; }
"""
FOLDER = Path(tempfile.gettempdir()) / f"cupy-double-{os.getuid()}"


class ElementwiseKernel:
    """As CuPy's, for flat arrays, without scalars and broadcasting."""

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        **kwargs: Any,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f'Invalid kernel name: "{name}"')
        self.inputs, self.outputs = _parameters(in_params), _parameters(out_params)
        self.operation, self.name, self.preamble = operation, name, preamble
        self.no_return = no_return

    def __call__(self, *args: Any) -> Any:
        parameters = self.inputs + self.outputs
        if len(args) != len(parameters):
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}: {len(args)}, "
                f"wanted {len(parameters)}"
            )
        size, types = args[0].size, {}
        for (told, name), array in zip(parameters, args, strict=True):
            if not array.flags.c_contiguous or array.size != size:
                raise NotImplementedError("the double knows flat, equally long arrays")
            wanted = types.setdefault(told, array.dtype.name) if len(told) == 1 else told
            if array.dtype.name != wanted:
                raise TypeError(f"{name} is {array.dtype.name}; wanted {wanted}")
        if size:
            code = self._code(types)
            pointers = (ctypes.c_void_p * len(args))(*(array.data.ptr for array in args))
            spans = [(array.data.ptr, array.data.ptr + array.nbytes) for array in args]
            for low, high in spans:
                runtime._ranges.on_device(low, high - low, f"kernel {self.name}")
            function, count = _compiled(code), len(self.inputs)

            def run() -> None:
                function(ctypes.c_size_t(size), pointers)

            _engine.submit(
                _current_queue(), f"kernel {self.name}", run, spans[:count], spans[count:]
            )
        if self.no_return:
            return None
        outputs = args[len(self.inputs) :]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _code(self, types: dict[str, str]) -> str:
        lines = [HEAD]
        lines += [f"typedef {C_TYPES[name]} {told};" for told, name in types.items()]
        used = {told for told, _ in self.inputs + self.outputs if len(told) > 1}
        lines += [f"typedef {C_TYPES[told]} {told};" for told in used if told in C_TYPES
                  and told != C_TYPES[told]]
        lines += [self.preamble, f"void run(size_t count, void **given) {{"]
        for place, (told, name) in enumerate(self.inputs + self.outputs):
            lines.append(f"{told} *_{name} = given[{place}];")
        lines.append("for (size_t i = 0; i < count; ++i) {")
        lines += [f"const {told} {name} = _{name}[i];" for told, name in self.inputs]
        lines += [f"#define {name} (_{name}[i])" for _, name in self.outputs]
        return "\n".join([*lines, self.operation, "}}"])


def _parameters(text: str) -> list[tuple[str, str]]:
    """Return type and name of each parameter."""
    found = [tuple(one.split()) for one in text.split(",") if one.strip()]
    for one in found:
        if len(one) != 2 or (len(one[0]) > 1 and one[0] not in C_TYPES):
            raise NotImplementedError(f"the double does not know the parameter {one}")
        if one[1] in ("i", "n") or one[1].startswith("_"):
            raise ValueError(f"Can not use '{one[1]}' as a parameter name")
    return [(told, name) for told, name in found]


def _current_queue() -> Any:
    from cupy.cuda.stream import get_current_stream

    stream = get_current_stream()
    return _engine.queue(runtime.getDevice(), stream.ptr)


@cache
def _compiled(code: str) -> Any:
    """Compile, once for all processes."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    name = hashlib.sha256(code.encode()).hexdigest()[:32]
    library = FOLDER / f"{name}.so"
    if not library.exists():
        own = FOLDER / f"{name}.{os.getpid()}"
        source = own.with_suffix(f".{os.getpid()}.c")
        source.write_text(code)
        flags = ["-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fwrapv"]
        made = subprocess.run(
            ["cc", *flags, "-o", str(own), str(source)], capture_output=True, text=True
        )
        source.unlink()
        if made.returncode:
            raise RuntimeError(f"{made.stderr}\n{code}")
        own.rename(library)
    return ctypes.CDLL(str(library)).run
