"""One case, and what a family's function is given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import strategy as distribute
from strategy import contexts

REASONS = (
    "device strings",
    "tf.function tracing",
    "gradients through collectives",
)
"""Why a case may be skipped; there is no other reason."""


class SkipCase(Exception):
    """This case cannot be run here; the reason is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        assert reason in REASONS, reason
        super().__init__(reason)


class NotUnderstood(Exception):
    """The case asks for something that no function here knows: a failure."""


@dataclass(frozen=True)
class Case:
    """What a case says, without its id."""

    api: str
    inputs: dict[str, Any]
    mode: str
    strategy_spec: dict[str, Any] | None
    rank: int = 0

    @cached_property
    def strategy(self) -> Any:
        """The strategy that the case names, made when first asked for."""
        return make_strategy(self.strategy_spec)

    @property
    def kind(self) -> str:
        """The kind of strategy, '' where the case has none."""
        return (self.strategy_spec or {}).get("kind", "")

    @property
    def replicas(self) -> int:
        """The number of replicas in this process."""
        spec = self.strategy_spec or {}
        return int(spec.get("replicas", spec.get("replicas_per_worker", 1)))

    def table(self, key: str, known: dict[str, Any]) -> Any:
        """Return what a table has for the text in `inputs[key]`."""
        text = self.inputs.get(key)
        if text not in known:
            raise NotUnderstood(f"{key} is {text!r}")
        return known[text]


def devices(count: int) -> list[str]:
    """Return the names of so many logical devices."""
    return [f"CPU:{index}" for index in range(count)]


MAKERS: dict[str, Any] = {
    "default": lambda spec: contexts.default_strategy(),
    "OneDevice": lambda spec: distribute.OneDeviceStrategy("CPU:0"),
    "Mirrored": lambda spec: distribute.MirroredStrategy(devices(spec["replicas"])),
    "CentralStorage": lambda spec: distribute.experimental.CentralStorageStrategy(
        devices(spec["replicas"])
    ),
    "MultiWorkerMirrored": lambda spec: distribute.MultiWorkerMirroredStrategy(
        devices=devices(spec["replicas_per_worker"])
    ),
}


def make_strategy(spec: dict[str, Any] | None) -> Any:
    """Return a new strategy; NotUnderstood for an unknown kind."""
    if spec is None or spec.get("kind") not in MAKERS:
        raise NotUnderstood(f"strategy {spec!r}")
    return MAKERS[spec["kind"]](spec)
