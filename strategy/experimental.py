"""The names that TensorFlow keeps under `tf.distribute.experimental`."""

from __future__ import annotations

from strategy import partitioners
from strategy.central_storage import CentralStorageStrategy
from strategy.cluster_resolver import ClusterResolver
from strategy.multi_worker import (
    MultiWorkerMirroredStrategy as _MultiWorkerMirroredStrategy,
)
from strategy.options import (
    CollectiveCommunication,
    CommunicationImplementation,
    CommunicationOptions,
)
from strategy.values import ValueContext

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ValueContext",
    "partitioners",
]


class MultiWorkerMirroredStrategy(_MultiWorkerMirroredStrategy):
    """The strategy by its old name, with `communication` in place of the options."""

    def __init__(
        self,
        communication: CommunicationImplementation = CommunicationImplementation.AUTO,
        cluster_resolver: ClusterResolver | None = None,
    ) -> None:
        options = CommunicationOptions(implementation=communication)
        super().__init__(cluster_resolver, options)


def CollectiveHints(
    bytes_per_pack: int = 0, timeout_seconds: float | None = None
) -> CommunicationOptions:
    """Return options, as `CommunicationOptions` does: their name before 2.4."""
    return CommunicationOptions(bytes_per_pack, timeout_seconds)
