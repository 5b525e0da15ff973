"""The communicator of a rank that is not in the group."""

from __future__ import annotations

from typing import Any

from collectives.errors import BrokenCommunicatorError


class Outsider:
    """What a rank gets for a group that it is not in: an error at every use."""

    def __init__(self, rank: int, what: str) -> None:
        """Remember which rank is outside of what."""
        self._text = f"rank {rank} is not in this communicator ({what})"

    def __bool__(self) -> bool:
        """Return False, so that `if group:` can be written."""
        return False

    def __repr__(self) -> str:
        """Return why this cannot be used."""
        return f"<{self._text}>"

    def close(self) -> None:
        """Do nothing: there is nothing to give up."""

    def __enter__(self) -> Outsider:
        """Return itself; the body of the `with` must ask before it calls anything."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        """Refuse every call; what Python asks for by itself is simply not there."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise BrokenCommunicatorError(self.__dict__.get("_text", "not made yet"))
