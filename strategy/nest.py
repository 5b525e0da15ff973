"""Nested lists, tuples, named tuples and dicts, and the leaves in them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from strategy.errors import StructureError

CONTAINERS = (list, tuple, dict)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves, left to right; a dict's in the order of its sorted keys.

    Sorted, because two ranks may have filled equal dicts in different orders.
    """
    leaves: list[Any] = []
    _collect(structure, leaves)
    return leaves


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """Return a copy of `structure` with `leaves` in the places of its own."""
    return _rebuild(structure, iter(leaves))


def map_structure(function: Callable[..., Any], structure: Any, *others: Any) -> Any:
    """Apply `function` leaf by leaf to structures that are alike.

    Raises `StructureError` where their types, lengths or keys differ.
    """
    if not others:
        return unflatten(structure, [function(leaf) for leaf in flatten(structure)])
    shape = _skeleton(structure)
    for number, other in enumerate(others, start=1):
        if _skeleton(other) != shape:
            raise StructureError(
                f"structure {number} is {_describe(other)}; "
                f"wanted the same as structure 0, {_describe(structure)}"
            )
    columns = [flatten(structure), *(flatten(other) for other in others)]
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])


def _is_leaf(structure: Any) -> bool:
    """Return whether it is no container; registered packs go as a whole."""
    return not isinstance(structure, CONTAINERS) or hasattr(structure, "flats")


def _children(structure: Any) -> list[Any] | None:
    """Return what a container holds, or None for a leaf."""
    if _is_leaf(structure):
        return None
    if isinstance(structure, dict):
        return [structure[key] for key in _keys(structure)]
    return list(structure)


def _collect(structure: Any, leaves: list[Any]) -> None:
    children = _children(structure)
    if children is None:
        leaves.append(structure)
        return
    for child in children:  # most are leaves: a call for each would take longer
        if isinstance(child, CONTAINERS):
            _collect(child, leaves)
        else:
            leaves.append(child)


def _keys(mapping: dict[Any, Any]) -> list[Any]:
    """Return the keys in an order that does not depend on how they were added."""
    return sorted(mapping, key=repr)


def _rebuild(structure: Any, leaves: Iterator[Any]) -> Any:
    if _is_leaf(structure):
        return next(leaves)
    if isinstance(structure, dict):
        result = copy.copy(structure)  # keeps the order, and a subclass's extras
        result.update({key: _rebuild(structure[key], leaves) for key in _keys(result)})
        return result
    items = [
        _rebuild(child, leaves) if isinstance(child, CONTAINERS) else next(leaves)
        for child in structure
    ]
    named = hasattr(structure, "_fields")
    return type(structure)(*items) if named else type(structure)(items)


def _skeleton(structure: Any) -> Any:
    """Return something that is equal for two structures that are alike."""
    children = _children(structure)
    if children is None:
        return None
    keys = _keys(structure) if isinstance(structure, dict) else None
    return type(structure), keys, [_skeleton(child) for child in children]


def _describe(structure: Any) -> str:
    children = _children(structure)
    name = type(structure).__name__
    return name if children is None else f"{name} of {len(children)}"
