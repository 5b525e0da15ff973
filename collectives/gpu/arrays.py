"""Stub until the core lands."""

from __future__ import annotations

from typing import Any


def cupy() -> Any:
    """Return the module."""
    import cupy as module

    return module
