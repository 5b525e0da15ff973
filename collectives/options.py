"""Options of a communicator, and the one reader of the RINGFOLD_* variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from collectives.errors import InvalidArgumentError
from collectives.ranges import Ranges, parse

PREFIX = "RINGFOLD_"
SHARED = ("check", "deterministic", "segment_bytes", "mpi_limit_bytes")
SWITCHES = {"0": False, "1": True, "false": False, "true": True}
LEAST: dict[str, float] = {
    "timeout_s": 0.001,
    "segment_bytes": 64,
    "mpi_limit_bytes": 0,
    "object_limit_bytes": 0,
}
CHOICES = {"check": ("on", "off", "full"), "log": ("off", "info")}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a communicator may be told; the same on every rank.

    Each field is read from `RINGFOLD_<FIELD>` where it is not given.
    """

    timeout_s: float = 600.0
    """Deadline of every call in seconds; a lower one notices trouble sooner."""

    algorithm: str = "auto"
    """Algorithm of calls that name none; or ranges of sizes, as in ranges.py."""

    table: str = ""
    """File of `ringfold tune` that rank 0 reads at start, not the shipped one."""

    check: str = "on"
    """`off` drops the comparison of calls across hosts (one host compares always);
    `full` also compares the results of all ranks, for debugging."""

    segment_bytes: int = 1 << 19
    """Bytes moved at a time; smaller overlaps better, larger costs fewer messages."""

    deterministic: bool = False
    """Whether every element must be combined strictly in the order of ranks, so that
    the bits depend on nothing but the inputs; costs speed."""

    mpi_limit_bytes: int = (1 << 31) - 1
    """No call of the MPI's own collectives gets more bytes than this."""

    object_limit_bytes: int = 1 << 30
    """No rank may give an object that takes more bytes than this when it is pickled;
    arrays are better moved by themselves."""

    abort: bool = True
    """Whether an uncaught exception or an early exit on one rank ends the whole job."""

    trace: str = ""
    """Folder for the flight recorder's files, which `ringfold trace` compares; without
    one, an error carries the last calls of its rank as a note."""

    log: str = "off"
    """`info` prints one line at the first use of each algorithm choice."""

    def __post_init__(self) -> None:
        """Refuse values that could never work."""
        for name, least in LEAST.items():
            value, kind = getattr(self, name), type(LEAST[name])
            number = isinstance(value, (int, kind)) and not isinstance(value, bool)
            if not number or not value >= least:
                raise InvalidArgumentError(
                    f"{name} is {value!r}; wanted {kind.__name__} of at least {least}"
                )
        for field in fields(self):
            value, wanted = getattr(self, field.name), type(field.default)
            if field.name not in LEAST and not isinstance(value, wanted):
                raise InvalidArgumentError(
                    f"{field.name} is {value!r}; wanted {wanted.__name__}"
                )
        parse(self.algorithm)  # wrong text is an error here, and not at a call
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InvalidArgumentError(
                    f"{name} is {getattr(self, name)!r}; wanted one of {allowed}"
                )

    @cached_property
    def ranges(self) -> Ranges:
        """What `algorithm` says, by size."""
        return parse(self.algorithm)

    @cached_property
    def shared(self) -> str:
        """What must be the same on all ranks for a call to work, in words."""
        return " ".join(f"{name}={getattr(self, name)}" for name in SHARED)

    @cached_property
    def salt(self) -> int:
        """32 bits that stand for `shared`."""
        return int.from_bytes(
            blake2b(self.shared.encode(), digest_size=4).digest(), "big"
        )

    def changed(self, **changes: Any) -> Options:
        """Return other options; a name that is none is an error."""
        unknown = changes.keys() - vars(self).keys()
        if unknown:
            known = " ".join(field.name for field in fields(self))
            raise InvalidArgumentError(
                f"{' '.join(sorted(unknown))} is not an option; known: {known}"
            )
        return replace(self, **changes)

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, **given: Any
    ) -> Options:
        """Read RINGFOLD_* variables; `given` wins; an unknown variable is an error."""
        environ = os.environ if environ is None else environ
        defaults = {field.name: field.default for field in fields(cls)}
        values: dict[str, Any] = {}
        for variable, text in environ.items():
            if not variable.startswith(PREFIX):
                continue
            name = variable[len(PREFIX) :].lower()
            if name not in defaults:
                known = " ".join(PREFIX + known.upper() for known in defaults)
                raise InvalidArgumentError(
                    f"{variable} is not an option; known: {known}"
                )
            values[name] = _parse(variable, text, defaults[name])
        return cls(**{**values, **given})


def _parse(variable: str, text: str, default: Any) -> Any:
    """Convert a variable's text to the type that its default has."""
    kind = type(default)
    try:
        return SWITCHES[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise InvalidArgumentError(
            f"{variable} is {text!r}; wanted a {kind.__name__} such as {default!r}"
        ) from None
