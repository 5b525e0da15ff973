"""Errors of one rank that all ranks must hear of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class Refusal:
    """Stands for what this rank could not make.

    In place of an array in a collective it raises the error there. `collectives` tells
    the other ranks before anything moves, and all of them raise.
    """

    nbytes = 0

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self.error

    def __repr__(self) -> str:
        return f"<refused: {self.error!r}>"


def or_refusal(make: Callable[[], Any]) -> Any:
    """Return what `make` returns, or a `Refusal` with what it raises."""
    try:
        return make()
    except Exception as error:
        return Refusal(error)
