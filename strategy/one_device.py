"""Everything on one named device."""

from __future__ import annotations

from strategy.base import Strategy
from strategy.devices import canonical
from strategy.extended import StrategyExtended


class OneDeviceStrategy(Strategy):
    """One replica, for programs that are written for several."""

    def __init__(self, device: str) -> None:
        super().__init__(OneDeviceExtended(self, device))


class OneDeviceExtended(StrategyExtended):
    """The machinery of one replica on one device: nothing is ever combined."""

    def __init__(self, strategy: Strategy, device: str) -> None:
        super().__init__(strategy)
        self.devices = self.variable_devices = (canonical(device),)
