"""`ElementwiseKernel`: C-like text for each element, run by NumPy.

What it reads is the part of C that such kernels are made of: declarations with a type,
assignments (also `+=`), expressions with casts, comparisons, `?:`, and the functions in
`FUNCTIONS`. Anything else is refused, so that a text the double runs is plain.
"""

import ast
import re
from typing import Any

import numpy as np

from cupy._array import SCALARS, launch, ndarray

TYPES = {
    "bool": "?", "char": "i1", "signed char": "i1", "short": "i2", "int": "i4",
    "long long": "i8", "unsigned char": "u1", "unsigned short": "u2",
    "unsigned int": "u4",
    "unsigned long long": "u8", "float16": "f2", "float": "f4", "double": "f8",
    "float32": "f4", "float64": "f8", "int8": "i1", "int16": "i2", "int32": "i4",
    "int64": "i8", "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
    "complex<float>": "c8", "complex<double>": "c16", "complex64": "c8",
    "complex128": "c16", "long": "i8", "size_t": "u8",
}  # fmt: skip
FUNCTIONS: dict[str, Any] = {
    # As in C++: NaN is lost or kept, by its place.
    "min": lambda a, b: np.where(b < a, b, a),
    "max": lambda a, b: np.where(a < b, b, a),
    "fmin": np.fmin, "fmax": np.fmax, "fminf": np.fmin, "fmaxf": np.fmax,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "abs": np.abs,
    "fabs": np.abs, "fabsf": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log,
    "__half2float": np.float32,
    "__int_as_float": lambda x: np.asarray(x, np.int32).view(np.float32),
    "__float_as_uint": lambda x: np.asarray(x, np.float32).view(np.uint32),
}  # fmt: skip


class ElementwiseKernel:
    def __init__(
        self, in_params: str, out_params: str, operation: str,
        name: str = "kernel", reduce_dims: bool = True, preamble: str = "",
        no_return: bool = False, return_tuple: bool = False, **more: Any,
    ) -> None:  # fmt: skip
        if preamble:
            raise NotImplementedError("the double runs no preamble")
        self.in_params, self.out_params = _params(in_params), _params(out_params)
        self.operation, self.name, self.no_return = operation, name, no_return
        self.nin, self.nout = len(self.in_params), len(self.out_params)
        self.return_tuple = return_tuple

    def __call__(self, *args: Any, size: Any = None, block_size: int = 128) -> Any:
        if len(args) not in (self.nin, self.nin + self.nout):
            raise TypeError(f"Wrong number of arguments for {self.name!r}")
        ins, outs = list(args[: self.nin]), list(args[self.nin :])
        for x in ins:
            if not isinstance(x, (ndarray, *SCALARS)):
                raise TypeError(f"Unsupported type {type(x)}")
        types = self._types(ins, outs)
        shapes = [x.shape for x in ins if isinstance(x, ndarray)]
        shapes += [] if shapes else [out.shape for out in outs]
        shape = np.broadcast_shapes(*shapes)
        for kind, _ in self.out_params[len(outs) :]:
            outs.append(ndarray(shape, types[kind]))
        names = {
            name: _value(x, types[kind])
            for x, (kind, name) in zip(ins, self.in_params, strict=True)
        }
        views = {
            name: out._view
            for out, (_, name) in zip(outs, self.out_params, strict=True)
        }
        statements = _statements(self.operation, types)

        def run() -> None:
            known = {**names, **views}
            for kind, name, code in statements:
                result = eval(
                    code, {"__builtins__": {}}, {**FUNCTIONS, **_casts(types), **known}
                )
                if name in views:
                    np.copyto(views[name], result, casting="unsafe")
                else:
                    kind = kind or np.asarray(known[name]).dtype
                    known[name] = np.asarray(result).astype(kind)

        launch(self.name, run, [x for x in ins if isinstance(x, ndarray)], outs)
        if self.no_return:
            return None
        return outs[0] if self.nout == 1 and not self.return_tuple else tuple(outs)

    def _types(self, ins: list[Any], outs: list[Any]) -> dict[str, np.dtype[Any]]:
        """Return the dtype that each type name stands for, T of the arguments' too."""
        types = {name: np.dtype(code) for name, code in TYPES.items()}
        given = [
            *zip(ins, self.in_params, strict=True),
            *zip(outs, self.out_params, strict=False),
        ]
        for arrays_first in (True, False):
            for x, (kind, name) in given:
                if isinstance(x, ndarray) is not arrays_first:
                    continue
                dtype = x.dtype if isinstance(x, ndarray) else np.asarray(x).dtype
                known = types.setdefault(kind, dtype)
                if isinstance(x, ndarray) and known != dtype:
                    raise TypeError(f"Type is mismatched. {name} {dtype} {known}")
        return types


def _params(text: str) -> list[tuple[str, str]]:
    params = []
    for part in filter(None, map(str.strip, text.split(","))):
        *kind, name = part.split()
        if kind[0] == "raw":
            raise NotImplementedError("the double has no raw arguments")
        params.append((" ".join(kind), name))
    return params


def _value(x: Any, dtype: np.dtype[Any]) -> Any:
    return x._view if isinstance(x, ndarray) else dtype.type(x)


def _casts(types: dict[str, np.dtype[Any]]) -> dict[str, Any]:
    return {_cast_name(kind): _caster(dtype) for kind, dtype in types.items()}


def _caster(dtype: np.dtype[Any]) -> Any:
    return lambda x: np.asarray(x).astype(dtype)


def _cast_name(kind: str) -> str:
    return "to_" + re.sub(r"\W", "_", kind)


_compiled: dict[Any, Any] = {}


def _statements(
    text: str, types: dict[str, np.dtype[Any]]
) -> list[tuple[Any, str, Any]]:
    """Return (dtype of what is declared, name, code) for each statement."""
    key = (text, tuple(types))
    if key not in _compiled:
        _compiled[key] = [
            _statement(part.strip(), types)
            for part in re.sub(r"//[^\n]*", "", text).split(";")
            if part.strip()
        ]
    return [(types.get(kind), name, code) for kind, name, code in _compiled[key]]


def _statement(text: str, types: dict[str, np.dtype[Any]]) -> tuple[str, str, Any]:
    found = re.fullmatch(
        r"(?s)(?:const\s+)?(.*?)\b(\w+)\s*([-+*/&|^]?)=(?!=)(.*)", text
    )
    if found is None:
        raise NotImplementedError(f"the double cannot run {text!r}")
    kind, name, operator, right = (part.strip() for part in found.groups())
    if kind and kind != "auto" and kind not in types:
        raise NotImplementedError(f"the double knows no type {kind!r} in {text!r}")
    right = f"{name} {operator} ({right})" if operator else right
    expression = _python(right, types)
    return (
        kind,
        name,
        compile(_Ternaries().visit(ast.parse(expression, mode="eval")), text, "eval"),
    )


def _python(text: str, types: dict[str, np.dtype[Any]]) -> str:
    """Turn an expression of C into one of Python."""
    for kind in sorted(types, key=len, reverse=True):
        word = re.escape(kind)
        cast = _cast_name(kind)
        text = re.sub(rf"static_cast\s*<\s*{word}\s*>", cast, text)
        text = re.sub(
            rf"\(\s*{word}\s*\)\s*(\w+(?:\([^()]*\))?|\([^()]*\))", rf"{cast}(\1)", text
        )
        text = re.sub(rf"(?<![\w<]){word}\s*\(", f"{cast}(", text)
    text = re.sub(r"(\d\.?\d*)[fFuUlL]+\b", r"\1", text)
    text = _questions(text)
    text = re.sub(r"&&", ") & (", text) if "&&" in text else text
    text = re.sub(r"\|\|", ") | (", text) if "||" in text else text
    text = re.sub(r"!(?!=)", "~", text)
    return f"({text})"


def _questions(text: str) -> str:
    """Turn the first `a ? b : c` outside of brackets into `(b) if (a) else (c)`."""
    text = _inside_brackets(text)
    mark = _top(text, "?")
    if mark < 0:
        return text
    colon = _matching_colon(text, mark)
    test, yes, no = text[:mark], text[mark + 1 : colon], text[colon + 1 :]
    return f"(({_questions(yes)}) if (({_logic(test)})) else ({_questions(no)}))"


def _logic(text: str) -> str:
    for sign, word in (("||", "|"), ("&&", "&")):
        place = _top(text, sign)
        if place >= 0:
            return f"({_logic(text[:place])}) {word} ({_logic(text[place + 2 :])})"
    return text


def _inside_brackets(text: str) -> str:
    made, start, depth = "", 0, 0
    for place, letter in enumerate(text):
        if letter == "(":
            depth += 1
            if depth == 1:
                made, start = made + text[start : place + 1], place + 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                inner = text[start:place]
                made += ", ".join(_logic(_questions(p)) for p in _arguments(inner))
                start = place
    return made + text[start:]


def _arguments(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def _top(text: str, sign: str) -> int:
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and text.startswith(sign, place):
            return place
    return -1


def _matching_colon(text: str, mark: int) -> int:
    depth = 0
    for place in range(mark + 1, len(text)):
        depth += text[place] in "(?"
        if text[place] == ":" and depth == 0:
            return place
        depth -= text[place] in "):"
    raise NotImplementedError(f"the double cannot read {text!r}")


class _Ternaries(ast.NodeTransformer):
    """Let `b if a else c` choose for each element."""

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        where = ast.Name("_where", ast.Load())
        call = ast.Call(where, [node.test, node.body, node.orelse], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


FUNCTIONS["_where"] = np.where
