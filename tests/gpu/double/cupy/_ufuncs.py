"""Functions of elements, under their names in NumPy, and reductions."""

from typing import Any

import numpy as np

from cupy._array import SCALARS, launch, ndarray, spans, supported

NAMES = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "true_divide",
    "floor_divide",
    "remainder",
    "power",
    "negative",
    "positive",
    "absolute",
    "abs",
    "sign",
    "square",
    "sqrt",
    "exp",
    "log",
    "sin",
    "cos",
    "tan",
    "reciprocal",
    "conjugate",
    "conj",
    "rint",
    "floor",
    "ceil",
    "trunc",
    "minimum",
    "maximum",
    "fmin",
    "fmax",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "bitwise_not",
    "left_shift",
    "right_shift",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
]


class ufunc:
    """One function of elements."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.__name__ = self.name = function.__name__
        self.nin, self.nout = function.nin, function.nout

    def __call__(
        self,
        *inputs: Any,
        out: Any = None,
        dtype: Any = None,
        casting: str = "same_kind",
        where: Any = True,
    ) -> Any:
        if len(inputs) > self.nin:
            *inputs, out = inputs  # type: ignore[assignment]
        out = out[0] if isinstance(out, tuple) else out
        for x in (*inputs, *([] if out is None else [out])):
            if not isinstance(x, (ndarray, *SCALARS)):
                raise TypeError(f"Unsupported type {type(x)}")
        arrays = [x for x in inputs if isinstance(x, ndarray)]
        operands = [x._view if isinstance(x, ndarray) else x for x in inputs]
        if out is None:
            out = ndarray(
                np.broadcast_shapes(*map(np.shape, operands)), self._type(inputs, dtype)
            )
        elif not isinstance(out, ndarray):
            raise TypeError("return arrays must be of ArrayType")
        else:
            made = self._type(inputs, dtype)
            if not np.can_cast(made, out.dtype, casting):  # type: ignore[arg-type]
                raise TypeError(f"output {out.dtype} cannot take {made} by {casting!r}")
        function, view = self._function, out._view
        more = {} if dtype is None else {"dtype": np.dtype(dtype)}
        if isinstance(where, ndarray):
            arrays.append(where)
            more["where"] = where._view

        def run() -> None:
            function(*operands, out=view, casting="unsafe", **more)

        launch(self.name, run, arrays, [out])
        return out

    def _type(self, inputs: Any, dtype: Any) -> np.dtype[Any]:
        kinds = [_kind(x) for x in inputs]
        more: dict[str, Any] = {}
        if dtype is not None:
            more["signature"] = (None,) * self.nin + (np.dtype(dtype),)
        if any(isinstance(kind, type) for kind in kinds) and self.nin == 1:
            kinds = [np.dtype(kind) for kind in kinds]
        *_, result = self._function.resolve_dtypes((*kinds, None), **more)
        return supported(result)


def _kind(x: Any) -> Any:
    if isinstance(x, (ndarray, np.generic)):
        return x.dtype
    return np.dtype(bool) if isinstance(x, bool) else type(x)


UFUNCS = {name: ufunc(getattr(np, name)) for name in NAMES if hasattr(np, name)}


def _operator(name: str, *, swapped: bool = False, inplace: bool = False) -> Any:
    function = UFUNCS[name]

    def apply(self: ndarray, *others: Any) -> Any:
        if not all(isinstance(other, (ndarray, *SCALARS)) for other in others):
            if any(isinstance(other, np.ndarray) for other in others):
                raise TypeError("Unsupported type <class 'numpy.ndarray'>")
            return NotImplemented
        if inplace:
            return function(self, *others, out=self)
        return function(*others, self) if swapped else function(self, *others)

    return apply


OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift",
    "rshift": "right_shift",
}  # fmt: skip
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "neg": "negative", "pos": "positive", "abs": "absolute",
    "invert": "invert",
}  # fmt: skip
for _short, _name in OPERATORS.items():
    setattr(ndarray, f"__{_short}__", _operator(_name))
    setattr(ndarray, f"__r{_short}__", _operator(_name, swapped=True))
    setattr(ndarray, f"__i{_short}__", _operator(_name, inplace=True))
for _short, _name in COMPARISONS.items():
    setattr(ndarray, f"__{_short}__", _operator(_name))


def _reduction(name: str) -> Any:
    function = getattr(np, name)

    def apply(
        a: ndarray, axis: Any = None, dtype: Any = None, out: Any = None,
        keepdims: bool = False,
    ) -> ndarray:  # fmt: skip
        more = {} if dtype is None else {"dtype": np.dtype(dtype)}
        # One element along each axis tells the dtype and, with the axes, the shape.
        form = function(
            np.zeros([1] * a.ndim, a.dtype), axis=axis, keepdims=True, **more
        )
        axes = range(a.ndim) if axis is None else np.atleast_1d(axis) % max(a.ndim, 1)
        kept = [1 if i in axes else n for i, n in enumerate(a.shape)]
        shape = kept if keepdims else [n for i, n in enumerate(kept) if i not in axes]
        made = ndarray(tuple(shape), form.dtype) if out is None else out
        view, target = a._view, made._view

        def run() -> None:
            target[...] = function(view, axis=axis, keepdims=keepdims, **more)

        launch(name, run, [a], [made])
        return made

    return apply


REDUCTIONS = {name: _reduction(name) for name in ("sum", "prod", "mean")}
for _name in ("min", "max", "all", "any"):

    def _without_dtype(made: Any = _reduction(_name)) -> Any:  # noqa: B008
        def apply(
            a: ndarray, axis: Any = None, out: Any = None, keepdims: bool = False
        ) -> Any:
            return made(a, axis, None, out, keepdims)

        return apply

    REDUCTIONS[_name] = _without_dtype()
REDUCTIONS["amin"], REDUCTIONS["amax"] = REDUCTIONS["min"], REDUCTIONS["max"]
for _name in ("sum", "prod", "mean", "min", "max", "all", "any"):
    setattr(ndarray, _name, REDUCTIONS[_name])


def count_nonzero(a: Any, axis: Any = None) -> Any:
    """Return how many elements are not zero, in an array of no dimensions."""
    return REDUCTIONS["sum"](UFUNCS["not_equal"](a, 0), axis)


REDUCTIONS["count_nonzero"] = count_nonzero


def where(condition: Any, x: Any, y: Any) -> ndarray:
    """Return elements of `x` or `y`."""
    operands = [v._view if isinstance(v, ndarray) else v for v in (condition, x, y)]
    shape = np.broadcast_shapes(*map(np.shape, operands))
    made = ndarray(shape, np.result_type(*operands[1:]))
    view = made._view

    def run() -> None:
        view[...] = np.where(*operands)

    launch(
        "where", run, [v for v in (condition, x, y) if isinstance(v, ndarray)], [made]
    )
    return made


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Tell whether the bounds of two arrays' memory meet."""
    return any(x < v and u < y for x, y in spans(a._view) for u, v in spans(b._view))


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Tell whether two arrays have an element in common."""
    return bool(np.shares_memory(a._view, b._view))
