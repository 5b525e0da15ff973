"""Hypothesis: views of any shape, strides and order into memory with neighbours."""

from math import prod
from typing import Any, NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

SAME_ON_ALL_RANKS = settings(derandomize=True, database=None, deadline=None)
"""Ranks that drew different examples would make different calls."""

STEPS = (1, 2, 3, -1, -2, -3)


class View(NamedTuple):
    """How to lay out an array of a given shape."""

    order: tuple[int, ...]
    """The axes, from the outermost in memory to the innermost."""
    steps: tuple[int, ...]
    """Along each axis, in elements; negative ones go backwards."""
    margins: tuple[tuple[int, int], ...]
    """Elements before and after, along each axis."""
    offset: int
    """Bytes by which the memory is out of alignment."""

    def make(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Any]:
        """Return the memory, as bytes that are all 0x55, and the view into it."""
        lengths = [
            before + abs(step) * max(0, n - 1) + (n > 0) + after
            for n, step, (before, after) in zip(
                shape, self.steps, self.margins, strict=True
            )
        ]
        nbytes = prod(lengths) * dtype.itemsize
        memory = np.full(self.offset + nbytes, 0x55, np.uint8)
        inside = memory[self.offset :].view(dtype)
        inside = inside.reshape([lengths[axis] for axis in self.order])
        view = inside.transpose(np.argsort(self.order)) if shape else inside
        for axis, (n, step) in enumerate(zip(shape, self.steps, strict=True)):
            before = self.margins[axis][0]
            places = slice(before, before + abs(step) * max(0, n - 1) + (n > 0))
            along = [slice(None)] * len(shape)
            along[axis] = places
            view = view[tuple(along)]
            along[axis] = slice(None, None, step)
            view = view[tuple(along)]
        return memory, view


def shapes(least: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    """Return shapes of `least` to three axes."""
    return st.lists(st.integers(0, 5), min_size=least, max_size=3).map(tuple)


@st.composite
def views(draw: st.DrawFn, axes: int) -> View:
    """Return layouts of arrays with so many axes."""
    margin = st.integers(0, 2)
    return View(
        tuple(draw(st.permutations(range(axes)))),
        tuple(draw(st.sampled_from(STEPS)) for _ in range(axes)),
        tuple((draw(margin), draw(margin)) for _ in range(axes)),
        draw(st.sampled_from((0, 1, 4, 8))),
    )


def untouched(memory: Any, view: Any) -> bool:
    """Tell whether nothing beside a view has changed; overwrites the view."""
    np.copyto(view, np.frombuffer(b"\x55" * view.dtype.itemsize, view.dtype)[0])
    return bool((memory == 0x55).all())
