"""Several replicas in one process that share one copy of each variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from strategy import contexts
from strategy.base import Strategy
from strategy.cross_device_ops import ReductionToOneDevice
from strategy.devices import canonical, check_there, local_devices, place_named
from strategy.placing import on
from strategy.replicated import ReplicatedExtended
from strategy.values import select
from strategy.variable_rules import AGGREGATING, PLAIN


class CentralStorageStrategy(Strategy):
    """Replicas on `compute_devices`, variables on `parameter_device`; starts no MPI.

    The parameter device is the CPU where there are several compute devices, else that
    one device.
    """

    def __init__(
        self,
        compute_devices: Sequence[str] | None = None,
        parameter_device: str | None = None,
    ) -> None:
        devices = local_devices(compute_devices)
        central = parameter_device or ("CPU:0" if len(devices) > 1 else devices[0])
        check_there([central])
        super().__init__(CentralStorageExtended(self, devices, canonical(central)))


class CentralStorageExtended(ReplicatedExtended):
    """Replicas as a mirrored strategy has them, and one component for all of them."""

    pads_input = False

    def __init__(
        self, strategy: Strategy, devices: tuple[str, ...], central: str
    ) -> None:
        super().__init__(strategy, devices, ReductionToOneDevice())
        self.variable_devices = (central,)

    def variable_kind(self, on_read: bool) -> str:
        """Return AGGREGATING, with one replica PLAIN; ON_READ makes no difference."""
        return AGGREGATING if len(self.replica_ids) > 1 else PLAIN

    def update_components(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        """Call `fn` once, with the first component of arguments that have several."""
        with (
            on(place_named(self.variable_devices[0])),
            contexts.entered(contexts.Mode(self._strategy, None, 0)),
        ):
            result = fn(var, *select(0, args), **select(0, kwargs))
        return result if group else (result,)
