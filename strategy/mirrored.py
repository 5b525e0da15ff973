"""Several replicas in one process, with variables mirrored on all of them."""

from __future__ import annotations

from collections.abc import Sequence

from strategy.base import Strategy
from strategy.collective_all_reduce import CollectiveAllReduce
from strategy.cross_device_ops import CrossDeviceOps
from strategy.devices import local_devices
from strategy.replicated import ReplicatedExtended


class MirroredStrategy(Strategy):
    """Data-parallel training on several devices of this process; starts no MPI.

    `devices` are names such as "CPU:0", "CPU:1", which are logical: each is a replica
    of its own; without them there is one. `cross_device_ops` says how the replicas'
    values are combined.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
    ) -> None:
        ops = CollectiveAllReduce() if cross_device_ops is None else cross_device_ops
        super().__init__(ReplicatedExtended(self, local_devices(devices), ops))
