"""Everything on one named device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from strategy.base import Strategy
from strategy.devices import canonical, check_there
from strategy.distributed_dataset import DistributedDataset
from strategy.extended import StrategyExtended
from strategy.input_context import InputContext, InputOptions
from strategy.input_pipelines import distribute, from_function


class OneDeviceStrategy(Strategy):
    """One replica, for programs that are written for several."""

    def __init__(self, device: str) -> None:
        super().__init__(OneDeviceExtended(self, device))


class OneDeviceExtended(StrategyExtended):
    """The machinery of one replica on one device: nothing is ever combined."""

    def __init__(self, strategy: Strategy, device: str) -> None:
        super().__init__(strategy)
        self.devices = self.variable_devices = (canonical(device),)
        check_there(self.devices)

    def distribute_dataset(
        self, dataset: Iterable[Any], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Return all batches, whole and bare."""
        return distribute(dataset, InputContext(), options=options, places=self.places)

    def distribute_from_function(
        self,
        dataset_fn: Callable[[InputContext], Iterable[Any]],
        options: InputOptions | None = None,
    ) -> DistributedDataset:
        """Return all that `dataset_fn` makes."""
        return from_function(
            dataset_fn, InputContext(), options=options, places=self.places
        )
